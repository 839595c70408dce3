/*
 * lab_lines.c - lines out of a byte stream, and lines with a host's prefix.
 *
 * A line is written whole before the next, so those of several hosts never mix. Bytes pass
 * as they are, 0 bytes included; only a missing last newline is added.
 * Knows nothing of hosts but their numbers.
 */
#include "lab_lines.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "lab.h"

#define LINE_MAX_BYTES (1024U * 1024U)
/* A line is cut only when so much more is here that what lab_lines_strip() looks for is not. */
#define HELD_MAX_BYTES (LINE_MAX_BYTES + LAB_STRIP_MAX)

static int reserve(struct lab_lines *lines, size_t need)
{
    size_t size = lines->size ? lines->size : 1024;
    char *data;

    if (need <= lines->size)
        return 0;
    while (size < need)
        size *= 2;
    data = realloc(lines->data, size);
    if (!data)
        return -ENOMEM;
    lines->data = data;
    lines->size = size;
    return 0;
}

/* Gives fn the first len bytes; what follows them moves to the front. */
static void give(struct lab_lines *lines, size_t len, lab_line_fn *fn, void *arg)
{
    char next = lines->data[len];

    lines->data[len] = 0;
    fn(arg, lines->data, len);
    lines->data[len] = next;
    lines->len -= len;
    memmove(lines->data, lines->data + len, lines->len);
}

static void give_all(struct lab_lines *lines, lab_line_fn *fn, void *arg)
{
    if (lines->len > LINE_MAX_BYTES)
        give(lines, LINE_MAX_BYTES, fn, arg);
    give(lines, lines->len, fn, arg);
}

int lab_lines_add(struct lab_lines *lines, const char *data, size_t len, lab_line_fn *fn, void *arg)
{
    while (len > 0) {
        const char *newline = memchr(data, '\n', len);
        size_t part = newline ? (size_t)(newline - data) : len;
        bool whole = newline != NULL;
        int r;

        if (part > HELD_MAX_BYTES - lines->len) {
            part = HELD_MAX_BYTES - lines->len;
            whole = false;
        }
        /* One more for the 0 byte that fn is promised. */
        r = reserve(lines, lines->len + part + 1);
        if (r < 0)
            return r;
        memcpy(lines->data + lines->len, data, part);
        lines->len += part;
        data += part + whole;
        len -= part + whole;
        if (whole)
            give_all(lines, fn, arg);
        else if (lines->len == HELD_MAX_BYTES)
            give(lines, LINE_MAX_BYTES, fn, arg);
    }
    return 0;
}

bool lab_lines_strip(struct lab_lines *lines, const char *text)
{
    size_t len = strlen(text);

    if (lines->len < len || memcmp(lines->data + lines->len - len, text, len) != 0)
        return false;
    lines->len -= len;
    return true;
}

void lab_lines_end(struct lab_lines *lines, lab_line_fn *fn, void *arg)
{
    if (lines->len > 0)
        give_all(lines, fn, arg);
    free(lines->data);
    *lines = (struct lab_lines){0};
}

/* For poll(). */
static int rest_of(int64_t until_ms)
{
    int64_t now = lab_now_ms();

    if (!until_ms)
        return -1;
    return until_ms <= now ? 0 : (int)(until_ms - now);
}

int lab_write(int fd, struct lab_patience patience, const char *data, size_t len)
{
    while (len > 0) {
        struct pollfd pfd[2] = {{.fd = fd, .events = POLLOUT},
                                {.fd = patience.cancel_fd, .events = POLLIN}};
        size_t part = len;
        ssize_t r = poll(pfd, 2, rest_of(patience.until_ms));

        if (r < 0 && errno != EINTR)
            return -errno;
        if (r == 0)
            return -ETIMEDOUT;
        if (pfd[1].revents)
            return -EINTR;
        if (!pfd[0].revents)
            continue;
        /* A pipe that polls writable takes this much without blocking. */
        if (len > 4096)
            part = 4096;
        r = write(fd, data, part);
        if (r < 0) {
            if (errno == EINTR || errno == EAGAIN)
                continue;
            return -errno;
        }
        data += r;
        len -= (size_t)r;
    }
    return 0;
}

int lab_print(int fd, struct lab_patience patience, bool raw, unsigned host, const char *text,
              size_t len)
{
    char small[1024];
    char prefix[32];
    size_t prefix_len = (size_t)snprintf(prefix, sizeof prefix, "host%u| ", host);
    size_t total = prefix_len + len + (raw ? 2 : 1);
    char *line = total <= sizeof small ? small : malloc(total);
    int r;

    if (!line)
        return -ENOMEM;
    memcpy(line, prefix, prefix_len);
    memcpy(line + prefix_len, text, len);
    if (raw)
        line[total - 2] = '\r';
    line[total - 1] = '\n';
    r = lab_write(fd, patience, line, total);
    if (line != small)
        free(line);
    return r;
}
