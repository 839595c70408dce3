/*
 * kit.h - what the cases of this folder share. A case is one function that prints what it saw of
 * one behaviour: results, errno's names, bytes, events; nothing that two plain runs may differ in
 * (times, ports, process ids, how much fits into a buffer). main.c runs each in a process of its
 * own, tests/conform/run does so in several ways and compares.
 *
 * How a connection is on a rail when the behaviour begins: CONFORM_BOARD=wait makes pair() and
 * far_begin() wait until both directions are, =race returns as soon as the streams may board, so
 * that they do so in the middle. CONFORM_ADDRESS and CONFORM_ADDRESS6 are addresses of an RDMA
 * device's to take for 127.0.0.1 and ::1; only streams between such a one and itself board.
 */
#ifndef CONFORM_KIT_H
#define CONFORM_KIT_H

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

/* ---- registration */

void case_add(const char *file, const char *name, const char *variant, void (*fn)(const void *),
              const void *arg);

#define COUNT(table) (sizeof(table) / sizeof((table)[0]))

#define CASE(id)                                            \
    static void id##_case(void);                            \
    static void id##_run(const void *unused)                \
    {                                                       \
        (void)unused;                                       \
        id##_case();                                        \
    }                                                       \
    __attribute__((constructor)) static void id##_add(void) \
    {                                                       \
        case_add(__FILE__, #id, NULL, id##_run, NULL);      \
    }                                                       \
    static void id##_case(void)

/* One case for each row of a table, whose type has a `name`; the row is f. */
#define EACH(id, type, table, count)                                         \
    static void id##_case(const type *f);                                    \
    static void id##_run(const void *arg)                                    \
    {                                                                        \
        id##_case(arg);                                                      \
    }                                                                        \
    __attribute__((constructor)) static void id##_add(void)                  \
    {                                                                        \
        for (size_t i = 0; i < (count); i++)                                 \
            case_add(__FILE__, #id, (table)[i].name, id##_run, &(table)[i]); \
    }                                                                        \
    static void id##_case(const type *f)

/* ---- printing */

/* errno must not change when a call succeeds. */
#define CLEAN 4242

/* Prints a result; errno as it was after the call. Returns it. */
long show(const char *what, long result, int error);

#define SHOW(call)                   \
    __extension__({                  \
        errno = CLEAN;               \
        long show_r_ = (long)(call); \
        show(#call, show_r_, errno); \
    })

/* The same under another name, for calls whose text is not the same in each run. */
#define SHOW_AS(name, call)          \
    __extension__({                  \
        errno = CLEAN;               \
        long show_r_ = (long)(call); \
        show(name, show_r_, errno);  \
    })

void say(const char *format, ...) __attribute__((format(printf, 1, 2)));
void say_events(const char *what, int events); /* POLL* */
void say_error(int fd);                        /* SO_ERROR, which is told by that */
void say_bytes(const char *what, const void *bytes, ssize_t n);
void say_rest(int fd); /* what comes up to the end, waiting for it */
/* The case fails here, with errno. */
__attribute__((noreturn)) void give_up(const char *what);
static inline void must(bool ok, const char *what)
{
    if (!ok)
        give_up(what);
}

/* ---- connections */

/* 127.0.0.1, or what CONFORM_ADDRESS says. */
const char *own_address(void);
/* Stand for this run's own addresses where one is to be parsed. */
#define OWN  "127.0.0.1"
#define OWN6 "::1"

/* What listener() and pair_over() connect over. */
struct net {
    const char *name;
    int family;             /* of both sockets */
    const char *bound, *to; /* addresses */
};

extern const struct net net4, net6;

int listener(const struct net *net, struct sockaddr_storage *at, socklen_t *len);
/* p[0] has connected, p[1] is accepted; boarded as the run wants it. */
void pair(int p[2]);
void pair_over(const struct net *net, int p[2]);
void pair_raw(const struct net *net, int p[2]); /* no byte was exchanged */
void board(int a, int b);
void board_one(int fd, bool first); /* the ends are in two processes, of which one is the first */
void nonblock(int fd, bool on);

/* Only what one of the ends sends, and that one says so. */
void board_half(int fd, bool sends);

/* ---- waiting for what happens at the other end: 10 s, then the case fails */

#define PATIENCE 30000 /* ms */

/* Whether the public file of this process says that fd sends, receives, or both, on a rail; or, if
 * it need not last, has done so. Does not wait. */
bool on_rail(int fd, bool sends, bool receives, bool lasting);
int until(int fd, int events);  /* poll says at least these; returns what it said */
void arrived(int fd, size_t n); /* that many bytes can be read */
void deliver(int from, int to, const char *text);
void acked(int fd);           /* SIOCOUTQ says 0 */
void taken(int from, int to); /* the same, and a reader of the other end has it all */
/* Sends until nothing more is taken for a good while; the socket ends up in the mode that it was
 * in. Byte i of the stream is pattern(i), from *at on, which is moved. */
void fill(int fd, size_t *at);
unsigned char pattern(size_t i);
void put(int fd, size_t from, size_t n); /* blocking, all */
/* Reads n bytes, or to the end with SIZE_MAX; false and a line if they are not the pattern. */
bool take(int fd, size_t from, size_t n);
void sleep_ms(int ms);
/* Calls that begin now, with this time-out, have ended: one after the other, which is for a
 * slow machine. */
void timed_out(const struct timeval *);

/* The peer's end is gone without a FIN: RST. fd is closed. */
void reset(int fd);

/* ---- a thread that does something once this one sleeps in a call */

struct later {
    pthread_t thread;
    int of; /* tid of the thread that will sleep */
    void (*fn)(void *);
    void *arg;
};

void later(struct later *l, void (*fn)(void *), void *arg);
void later_end(struct later *l);
/* The thread tid of this process sleeps, or 2 s have passed. */
void asleep(int tid);
int my_tid(void);

/* ---- signals */

extern volatile sig_atomic_t caught;
void catch_signal(int sig, int flags); /* counts in caught */
void until_caught(void);               /* once more; 5 s at most */

/* ---- descriptors on their way through a Unix socket */

ssize_t pass_fd(int via, int fd); /* what sendmsg returned */
int passed_fd(int via);

/* ---- the other end in a process of its own */

struct far {
    pid_t pid;
    int fd;      /* this process's end of the connection */
    int in, out; /* pipes */
};

/* fn runs in the child with its end of the connection; returns there once boarded. */
void far_begin(struct far *f, void (*fn)(struct far *));
/* The same, boarded in another way, or not yet. here: of this process's end. */
void far_begin_as(struct far *f, void (*fn)(struct far *), void (*boards)(int fd, bool here));
void far_step(struct far *f); /* lets the other side's far_wait return */
void far_wait(struct far *f);
int far_end(struct far *f); /* waits for the child, says how it ended */

#endif
