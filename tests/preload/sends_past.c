/*
 * sends_past.c - sends that a rail cannot carry, to a peer that is stopped: they need nothing of
 * it, as long as TCP has room, and what does not wait says EAGAIN where there is none. Each byte
 * arrives once, in its order.
 */
#include "say.h"

#include <poll.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/uio.h>
#include <sys/wait.h>

enum { PIECE = 64, FEW = 30, LARGE = 4096 };

static int l, said[2], pipes[2];
static struct sockaddr_in at;
static unsigned long long sent;
static char bytes[LARGE + 1];

static char byte_at(unsigned long long i)
{
    return (char)('a' + i % 23);
}

static const char *next_bytes(size_t n)
{
    for (size_t i = 0; i < n; i++)
        bytes[i] = byte_at(sent + i);
    bytes[n] = '\0';
    return bytes;
}

static ssize_t by_splice(int fd, size_t n)
{
    int left = 0;

    must(ioctl(pipes[0], FIONREAD, &left) == 0, "FIONREAD");
    if (!left)
        must(write(pipes[1], next_bytes(n), n) == (ssize_t)n, "pipe");
    return splice(pipes[0], NULL, fd, NULL, n, SPLICE_F_NONBLOCK);
}

static ssize_t by_dprintf(int fd, size_t n)
{
    return dprintf(fd, "%s", next_bytes(n));
}

static ssize_t by_sendmsg(int fd, size_t n)
{
    union {
        struct cmsghdr head;
        char room[CMSG_SPACE(sizeof(int))];
    } control = {.head = {CMSG_LEN(sizeof(int)), SOL_SOCKET, SO_TIMESTAMPING}};
    struct iovec v = {(void *)next_bytes(n), n};
    struct msghdr m = {
        .msg_iov = &v, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof(control)};

    return sendmsg(fd, &m, MSG_DONTWAIT);
}

static ssize_t by_pwritev2(int fd, size_t n)
{
    struct iovec v = {(void *)next_bytes(n), n};

    return pwritev2(fd, &v, 1, -1, RWF_DSYNC);
}

static ssize_t by_flag(int fd, size_t n)
{
    return send(fd, next_bytes(n), n, MSG_DONTWAIT | MSG_ZEROCOPY);
}

static ssize_t by_number(int fd, size_t n)
{
    return syscall(SYS_sendto, fd, next_bytes(n), n, MSG_DONTWAIT, NULL, 0);
}

static ssize_t by_eventfd(int fd, size_t n)
{
    eventfd_t value;

    memcpy(&value, next_bytes(sizeof(value)), sizeof(value));
    (void)n;
    return eventfd_write(fd, value) == 0 ? (ssize_t)sizeof(value) : -1;
}

static const struct way {
    const char *name;
    ssize_t (*put)(int fd, size_t n);
    bool fills;
} ways[] = {{"splice", by_splice, true},         {"control", by_sendmsg, true},
            {"pwritev2", by_pwritev2, true},     {"zero copy", by_flag, true},
            {"by number", by_number, true},      {"dprintf", by_dprintf, false},
            {"eventfd_write", by_eventfd, false}};

/* Answers each word until it is told to read what comes. */
static void peer(void)
{
    int fd = accept(l, NULL, NULL);
    unsigned long long n = 0, all;
    char got[LARGE];
    ssize_t r;

    echo_words(fd);
    while ((r = read(fd, got, sizeof(got))) > 0)
        for (ssize_t i = 0; i < r; i++)
            must(got[i] == byte_at(n++), "a byte");
    must(r == 0 && read(said[0], &all, sizeof(all)) == sizeof(all) && all == n, "the number");
    _exit(0);
}

static void stopped(pid_t pid)
{
    int status;

    must(kill(pid, SIGSTOP) == 0 && waitpid(pid, &status, WUNTRACED) == pid && WIFSTOPPED(status),
         "stop");
}

static void few(const struct way *w, int fd)
{
    for (int i = 0; i < FEW; i++) {
        ssize_t n = w->put(fd, PIECE);

        must(n > 0, w->name);
        sent += (unsigned long long)n;
    }
}

/* Until there is no room, again and again. */
static void fill(const struct way *w, int fd)
{
    int again = 0;

    must(fcntl(fd, F_SETFL, O_NONBLOCK) == 0, "F_SETFL");
    for (bool way = false; again < FEW; way = way || again) {
        ssize_t n = way ? w->put(fd, LARGE) : write(fd, next_bytes(LARGE), LARGE);

        must(n > 0 || errno == EAGAIN, w->name);
        again = n > 0 ? 0 : again + 1;
        sent += n > 0 ? (unsigned long long)n : 0;
    }
}

static void one_more(const struct way *w, int fd)
{
    struct pollfd p = {fd, POLLOUT, 0};
    ssize_t n;

    while ((n = w->put(fd, LARGE)) < 0) {
        must(errno == EAGAIN, w->name);
        must(poll(&p, 1, 20000) == 1, "no room");
    }
    sent += (unsigned long long)n;
}

static void hit(const struct way *w, bool full)
{
    int fd, left;
    char drop[LARGE];
    pid_t pid;

    printf("-- %s%s\n", w->name, full ? ", no room" : "");
    fflush(stdout);
    sent = 0;
    pid = fork();
    if (pid == 0)
        peer();
    fd = socket(AF_INET, SOCK_STREAM, 0);
    must(connect(fd, (struct sockaddr *)&at, sizeof(at)) == 0, "connect");
    words_by_rail(fd);
    stopped(pid);
    if (full)
        fill(w, fd);
    else
        few(w, fd);
    must(kill(pid, SIGCONT) == 0, "SIGCONT");
    if (full)
        one_more(w, fd);
    must(shutdown(fd, SHUT_WR) == 0 && write(said[1], &sent, sizeof(sent)) == sizeof(sent), "said");
    ended(pid);
    close(fd);
    must(ioctl(pipes[0], FIONREAD, &left) == 0 && (!left || read(pipes[0], drop, LARGE) > 0),
         "pipe");
}

int main(void)
{
    alarm(120);
    signal(SIGPIPE, SIG_IGN);
    l = listener(&at);
    must(pipe(said) == 0 && pipe(pipes) == 0, "pipe");
    for (size_t i = 0; i < sizeof(ways) / sizeof(ways[0]); i++) {
        hit(&ways[i], false);
        if (ways[i].fills)
            hit(&ways[i], true);
    }
    return 0;
}
