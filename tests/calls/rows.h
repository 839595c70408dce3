/*
 * rows.h - for the programs of this folder: a row is one symbol of glibc's, called on a stream
 * which is on a rail in both directions. All rows are one program, which prints what it sees, so
 * that a run with the library can be compared with a run without; what only the first can know goes
 * to the file $ROWS_NOTES, as lines "SYMBOL stayed|left|unboarded ours|libc".
 *
 * That a stream boards and leaves is read from the library's log, $ROWS_LOG.
 */
#ifndef TESTS_CALLS_ROWS_H
#define TESTS_CALLS_ROWS_H

#include "../preload/pair.h"

#include <fcntl.h>

struct row {
    const char *symbol, *tag;
    void (*run)(void);
    struct row *next;
};

void rows_add(struct row *);

/* ROW(symbol, tag) { ... }; the tag tells rows of one symbol from each other, and may be empty. */
#define ROW(sym_, tag_)                                                    \
    static void run_##sym_##_##tag_(void);                                 \
    __attribute__((constructor)) static void add_##sym_##_##tag_(void)     \
    {                                                                      \
        static struct row row = {#sym_, #tag_, run_##sym_##_##tag_, NULL}; \
                                                                           \
        rows_add(&row);                                                    \
    }                                                                      \
    static void run_##sym_##_##tag_(void)

/* What a program that is linked to the name would call. */
void *rows_symbol(const char *name);
#define SYM(name) ((__typeof__(name) *)rows_symbol(#name))

/* The pair at hand: c has connected to s. On a rail when a row begins, given the library. */
extern int c, s;
/* The row has used them up. */
void rows_over(void);
/* A new pair in this process, on a rail. */
void rows_pair(void);
/* c and s are a pair that the row has made: it shall board. */
void rows_fresh(void);
/* Exchanges bytes over c and s until they are on a rail; tells whether they are. */
bool rows_board(void);
/* The same for one end, of which another process has the other. */
bool rows_board_end(int fd);
/* What was sent to fd, as many bytes. */
void rows_hear(int fd, size_t n);
/* In a child, with a pair of its own, on a rail. Returns in the parent when all holders of the
 * child's output have ended; prints how the child ended. */
void rows_apart(void (*run)(void));
/* In a child that has c, on a rail; s stays here. Prints what comes from there, and
 * how both end. */
void rows_last_words(void (*run)(void));
/* Runs as another program: writes through one of its numbers, reads from the other. */
#define ROWS_AFTER "--after"
extern char rows_c[16], rows_s[16]; /* the numbers, for its arguments */

/* Exported without a prototype. */
ssize_t __read(int fd, void *buf, size_t n);
ssize_t __read_chk(int fd, void *buf, size_t n, size_t room);
ssize_t __recv_chk(int fd, void *buf, size_t n, size_t room, int flags);
ssize_t __recvfrom_chk(int fd, void *buf, size_t n, size_t room, int flags, struct sockaddr *from,
                       socklen_t *len);
ssize_t __write(int fd, const void *buf, size_t n);
ssize_t __send(int fd, const void *buf, size_t n, int flags);
int __close(int fd);
int __connect(int fd, const struct sockaddr *to, socklen_t len);
int __dup2(int fd, int to);
int __fcntl(int fd, int cmd, ...);

#endif
