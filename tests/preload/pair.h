/*
 * pair.h - for the programs of this folder: each prints what its calls gave, so that a
 * run under the library can be compared with a run without. Nothing that differs between
 * two plain runs may be printed.
 */
#ifndef TESTS_PRELOAD_PAIR_H
#define TESTS_PRELOAD_PAIR_H

#include "../asleep.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/sockios.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sched.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* errno must not change when a call succeeds. */
#define CLEAN 4242

/* Prints the call's result, with errno's name if it failed, and whether errno moved if not. */
#define SHOW(call)                                                                  \
    do {                                                                            \
        errno = CLEAN;                                                              \
        long r_ = (long)(call);                                                     \
        int e_ = errno;                                                             \
        if (r_ == -1)                                                               \
            printf("%s = -1 %s\n", #call, strerrorname_np(e_));                     \
        else                                                                        \
            printf("%s = %ld%s\n", #call, r_, e_ == CLEAN ? "" : " (errno moved)"); \
    } while (0)

__attribute__((noreturn)) static inline void give_up(const char *what)
{
    perror(what);
    exit(2);
}

static inline void must(bool ok, const char *what)
{
    if (!ok)
        give_up(what);
}

/* In a loop that waits for what nobody tells. False: 60 s have passed since. */
static inline bool others_run(time_t since)
{
    sched_yield();
    return time(NULL) - since < 60;
}

/* Until that process's main thread does not run. */
static inline void until_process_sleeps(pid_t pid)
{
    time_t begin = time(NULL);

    while (at_work(state_of(pid)) && others_run(begin))
        ;
}

/* Lines of /proc/self/maps that contain it. */
static inline int mapped_lines(const char *it)
{
    FILE *maps = fopen("/proc/self/maps", "r");
    char line[512];
    int n = 0;

    must(maps != NULL, "/proc/self/maps");
    while (fgets(line, sizeof(line), maps))
        n += strstr(line, it) != NULL;
    fclose(maps);
    return n;
}

static inline int listener(struct sockaddr_in *at)
{
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    socklen_t len = sizeof(*at);
    const char *address = getenv("PAIR_ADDRESS"); /* one that RDMA goes by */

    memset(at, 0, sizeof(*at));
    at->sin_family = AF_INET;
    at->sin_addr.s_addr = address ? inet_addr(address) : htonl(INADDR_LOOPBACK);
    must(fd >= 0 && bind(fd, (struct sockaddr *)at, len) == 0 && listen(fd, 64) == 0, "listen");
    must(getsockname(fd, (struct sockaddr *)at, &len) == 0, "getsockname");
    return fd;
}

/* p[0] has connected to l at this address, p[1] is accepted. */
static inline void pair_at(int l, const struct sockaddr_in *at, int p[2])
{
    p[0] = socket(AF_INET, SOCK_STREAM, 0);
    must(connect(p[0], (const struct sockaddr *)at, sizeof(*at)) == 0, "connect");
    p[1] = accept(l, NULL, NULL);
    must(p[1] >= 0, "accept");
}

/* A thread of the library's that stands still in the middle of a step may have the number that the
 * program's would get, if it does so for longer than the program's call waits: then the next one
 * gets it. For loops that end with the right number. */
enum { TRIES_FOR_A_NUMBER = 20 };

/* Whether streams are to board at once. */
static inline bool mode_rail(void)
{
    const char *mode = getenv("RAILSOCK_MODE");

    return mode && strcmp(mode, "rail") == 0;
}

/* A 64-bit word of the kernel's struct tcp_info, of which libc's is the beginning; asked
 * past the library. */
static inline unsigned long long tcp_info_word(int fd, size_t byte)
{
    unsigned long long ti[64] = {0};
    socklen_t len = sizeof(ti);

    must(syscall(SYS_getsockopt, fd, IPPROTO_TCP, TCP_INFO, ti, &len) == 0, "TCP_INFO");
    return ti[byte / sizeof(ti[0])];
}

/* Bytes that the kernel's TCP has sent for fd, and has received. */
static inline unsigned long long tcp_sent(int fd)
{
    return tcp_info_word(fd, 200);
}

static inline unsigned long long tcp_received(int fd)
{
    return tcp_info_word(fd, 128);
}

/* Some bytes from p[i] to p[!i]. */
static inline void pass(int p[2], int i)
{
    char bytes[64] = "some bytes that both ends of the stream have seen";

    must(write(p[i], bytes, sizeof(bytes)) == sizeof(bytes), "write");
    must(recv(p[!i], bytes, sizeof(bytes), MSG_WAITALL) == sizeof(bytes), "recv");
}

/* Uses it until it has left TCP. */
static inline void boards(int p[2])
{
    for (int i = 0; i < 2; i++) {
        unsigned long long before;
        time_t begin = time(NULL);
        bool tcp;

        do {
            before = tcp_sent(p[i]);
            pass(p, i);
            tcp = tcp_sent(p[i]) != before;
        } while (tcp && others_run(begin));
        if (tcp)
            printf("direction %d is not on a rail\n", i);
    }
}

/* With the library in mode rail the stream must have left TCP, or the test tests nothing. */
static inline void on_rail(int p[2])
{
    if (mode_rail())
        boards(p);
}

/* The other end, in another process: sends back each word, up to one that begins with '!'. */
static inline void echo_words(int fd)
{
    char text[64];

    do
        must(recv(fd, text, sizeof(text), MSG_WAITALL) == sizeof(text) &&
                 write(fd, text, sizeof(text)) == sizeof(text),
             "echo");
    while (text[0] != '!');
}

static inline void word(int fd, char first)
{
    char text[64] = {first};

    must(write(fd, text, sizeof(text)) == sizeof(text) &&
             recv(fd, text, sizeof(text), MSG_WAITALL) == sizeof(text) && text[0] == first,
         "word");
}

/* Says words until neither end sends by TCP, and the last one. */
static inline void words_by_rail(int fd)
{
    time_t begin = time(NULL);
    bool tcp = true;

    for (int i = 0; i < 20 || (mode_rail() && tcp && others_run(begin)); i++) {
        unsigned long long to = tcp_sent(fd), from = tcp_received(fd);

        word(fd, '.');
        tcp = tcp_sent(fd) != to || tcp_received(fd) != from;
    }
    word(fd, '!');
    if (mode_rail() && tcp)
        puts("it is not on a rail");
}

/* Whether new streams of this process board: from some calls on they do not. */
static bool may_board = true;

/* As much as a stream needs that wants to board. With PAIR_WARM it has boarded afterwards, in mode
 * rail, and else it has had some time for it: it may board here, later or never. */
static inline void warm(int p[2])
{
    for (int i = 0; i < 20; i++) {
        pass(p, 0);
        pass(p, 1);
        if (getenv("PAIR_WARM") && !(mode_rail() && may_board))
            usleep(2000);
    }
    if (getenv("PAIR_WARM") && may_board)
        on_rail(p);
}

/* A connected pair that has exchanged that much. */
static inline void tcp_pair(int p[2])
{
    struct sockaddr_in at;
    int l = listener(&at);

    pair_at(l, &at, p);
    close(l);
    warm(p);
}

/* On a connection of its own: some calls keep theirs on TCP for good. */
static inline void on_a_pair(void (*section)(void), int *connected, int *accepted)
{
    int p[2];

    tcp_pair(p);
    *connected = p[0];
    *accepted = p[1];
    section();
    close(*connected);
    close(*accepted);
}

/* Whether a number that was closed is closed. */
static inline bool is_closed(int fd)
{
    return fcntl(fd, F_GETFD) < 0;
}

/* Until all that was written to `from` has arrived, and a reader of the other end has taken it. */
static inline void until_taken(int from, int to)
{
    int on_the_way = 1, left = 1;
    time_t begin = time(NULL);

    do {
        must(ioctl(from, SIOCOUTQ, &on_the_way) == 0, "SIOCOUTQ");
        must(ioctl(to, FIONREAD, &left) == 0, "FIONREAD");
        if (!on_the_way && !left)
            return;
    } while (others_run(begin));
    must(false, "nobody reads");
}

/* The other end sends this; wait until it has arrived, so that what is printed does not depend on
 * timing. */
static inline void deliver(int from, int to, const char *text)
{
    size_t n = strlen(text);
    time_t begin = time(NULL);
    char look[256];

    must(write(from, text, n) == (ssize_t)n, "deliver");
    do {
        if (recv(to, look, sizeof(look), MSG_PEEK | MSG_DONTWAIT) >= (ssize_t)n)
            return;
    } while (others_run(begin));
    must(false, "delivery");
}

#endif
