/*
 * lab_lines.h - turns a byte stream into lines, and prints lines with a host's prefix.
 */
#ifndef RAILSOCK_LAB_LINES_H
#define RAILSOCK_LAB_LINES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Texts up to this length are found at the end of a line of any length. */
#define LAB_STRIP_MAX 64

/* A stream's bytes since the last whole line. Zero-initialised before use. */
struct lab_lines {
    char *data;
    size_t len, size;
};

/* Gets each line without its newline; text is writable and is followed by a 0 byte. */
typedef void lab_line_fn(void *arg, char *text, size_t len);

/*
 * Adds bytes and calls fn for each line that they complete. A line longer than a MiB is
 * cut. Returns 0 or -ENOMEM. Does not block unless fn does.
 */
int lab_lines_add(struct lab_lines *lines, const char *data, size_t len, lab_line_fn *fn, void *arg)
    __attribute__((warn_unused_result));

/* If the unfinished line ends with this text, removes the text and returns true. */
bool lab_lines_strip(struct lab_lines *lines, const char *text);

/* Calls fn for the unfinished line, if any, and frees the buffer. */
void lab_lines_end(struct lab_lines *lines, lab_line_fn *fn, void *arg);

/* How long a write waits for who reads it. */
struct lab_patience {
    int cancel_fd;    /* no longer than until this is readable; -1: none */
    int64_t until_ms; /* nor than this time of lab_now_ms(); 0: any */
};

/*
 * Writes "hostN| TEXT\n" to fd, with "\r\n" if raw, for a terminal in raw mode needs it.
 * Blocks while fd does. Returns 0, or -errno: -EINTR when cancelled, -ETIMEDOUT when it took
 * too long. Part may have been written then.
 */
int lab_print(int fd, struct lab_patience patience, bool raw, unsigned host, const char *text,
              size_t len) __attribute__((warn_unused_result));

/* Writes bytes as they are, as lab_print() does. */
int lab_write(int fd, struct lab_patience patience, const char *data, size_t len)
    __attribute__((warn_unused_result));

#endif
