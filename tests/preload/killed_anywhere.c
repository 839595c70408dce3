/*
 * killed_anywhere.c - a process that is killed within a call on its connection, at one of its
 * instructions after another, in a child each. The other end gets every byte of the calls before,
 * perhaps some of this one's and nothing else, and then the end.
 */
#include "rounds.h"
#include "walk.h"

#include <pthread.h>
#include <sys/time.h>

enum { BEFORE = 5, PIECE = 64, LONG = 100000, MOST = BEFORE * PIECE + LONG };

struct call {
    const char *name;
    void (*make)(int fd);
    size_t sends;
    unsigned each; /* of so many instructions one (walk_step): all of them take a minute */
};

/* What it is, says its place. */
static unsigned char bytes[MOST];

static void write_piece(int fd)
{
    (void)write(fd, bytes + BEFORE * PIECE, PIECE);
}
static void write_long(int fd)
{
    (void)write(fd, bytes + BEFORE * PIECE, LONG);
}
static void read_piece(int fd)
{
    char some[PIECE];
    (void)read(fd, some, sizeof(some));
}
static void shut(int fd)
{
    shutdown(fd, SHUT_WR);
}
static void shut_number(int fd)
{
    close(fd);
}

static const struct call calls[] = {{"write", write_piece, PIECE, 8},
                                    {"a long write", write_long, LONG, 16},
                                    {"read", read_piece, 0, 8},
                                    {"shutdown", shut, 0, 32},
                                    {"close", shut_number, 0, 32}};

static struct shared {
    volatile bool over;
} * both;

/* The other end, a thread of the tracer's. */
struct other {
    int listener;
    const struct call *call;
    bool bad;
};

static void complain(struct other *o, const char *what, size_t got)
{
    printf("%s: %s, after %zu bytes\n", o->call->name, what, got);
    o->bad = true;
}

/* Round trips until the child has seen that they go by no TCP, if they are to. */
static int echo(int l)
{
    int fd = accept(l, NULL, NULL);
    char some[PIECE];

    must(fd >= 0, "accept");
    while (recv(fd, some, sizeof(some), MSG_WAITALL) == sizeof(some)) {
        must(write(fd, some, sizeof(some)) == sizeof(some), "echo");
        if (some[0] == 'b')
            return fd;
    }
    return fd;
}

static void *other_end(void *arg)
{
    static unsigned char got[MOST + 1];
    struct timeval limit = {20, 0};
    struct other *o = arg;
    int fd = echo(o->listener);
    sigset_t child;
    size_t n = 0;
    ssize_t r;

    /* While the tracer has it blocked, as within pthread_create, it would come to this thread, and
     * end a call that has a time-out. */
    sigemptyset(&child);
    sigaddset(&child, SIGCHLD);
    must(pthread_sigmask(SIG_BLOCK, &child, NULL) == 0, "SIGCHLD");
    must(setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit)) == 0, "SO_RCVTIMEO");
    while ((r = recv(fd, got + n, sizeof(got) - n, 0)) > 0)
        n += (size_t)r;
    if (r < 0 && errno != ECONNRESET)
        complain(o, strerrorname_np(errno), n);
    if (n < BEFORE * PIECE || n > BEFORE * PIECE + o->call->sends)
        complain(o, "too few or too many", n);
    else if (memcmp(got, bytes, n) != 0)
        complain(o, "other bytes", n);
    close(fd);
    return NULL;
}

/* Round trips until one has gone by no TCP, if they are to: each waits for its answer, and the
 * deadline for that one. */
static void boards_with(int fd)
{
    char some[PIECE] = "a";
    unsigned long long sent, received;

    do {
        sent = tcp_sent(fd);
        received = tcp_received(fd);
        must(write(fd, some, sizeof(some)) == sizeof(some), "write");
        must(recv(fd, some, sizeof(some), MSG_WAITALL) == sizeof(some), "echo");
    } while (mode_rail() && (tcp_sent(fd) != sent || tcp_received(fd) != received));
    some[0] = 'b';
    must(write(fd, some, sizeof(some)) == sizeof(some), "write");
}

static void child(const struct sockaddr_in *at, const struct call *c)
{
    int fd = socket(AF_INET, SOCK_STREAM, 0), one = 1;
    char none;

    must(ptrace(PTRACE_TRACEME, 0, NULL, NULL) == 0, "PTRACE_TRACEME");
    must(connect(fd, (const struct sockaddr *)at, sizeof(*at)) == 0, "connect");
    must(setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one)) == 0, "TCP_NODELAY");
    boards_with(fd);
    /* The last echo is for read. */
    must(recv(fd, &none, 1, MSG_PEEK) == 1, "the echo");
    for (int i = 0; i < BEFORE; i++)
        must(write(fd, bytes + i * PIECE, PIECE) == PIECE, "write");
    raise(SIGTRAP);
    c->make(fd);
    both->over = true;
    raise(SIGTRAP); /* it did not come by that instruction this time */
}

/* One child, which is killed at its n'th place, or walked through. */
static bool one(struct other *o, const struct sockaddr_in *at, struct walk *w, unsigned n)
{
    pthread_t t;
    int status;
    pid_t pid;

    both->over = false;
    fflush(stdout);
    pid = fork();
    if (pid == 0) {
        child(at, o->call);
        _exit(1);
    }
    must(pthread_create(&t, NULL, other_end, o) == 0, "pthread_create");
    status = first_stop(pid);
    must(WIFSTOPPED(status) && WSTOPSIG(status) == SIGTRAP, "the child's raise");
    if (w->places)
        run_to(pid, w->at[n]);
    else
        walk(w, pid, &both->over);
    must(kill(pid, SIGKILL) == 0 && waitpid(pid, &status, 0) == pid, "SIGKILL");
    pthread_join(t, NULL);
    return !o->bad;
}

int main(int argc, char **argv)
{
    struct sockaddr_in at;
    static struct walk w;

    (void)argc;
    (void)argv;
    if (!CAN_WALK)
        return 0;
    start_deadline();
    both = shared_by_all(sizeof(*both));
    for (size_t i = 0; i < sizeof(bytes); i++)
        bytes[i] = (unsigned char)((i * 2654435761u) >> 24);
    for (unsigned i = 0; i < sizeof(calls) / sizeof(calls[0]); i++) {
        struct other o = {listener(&at), &calls[i], false};

        doing = calls[i].name;
        w.places = 0;
        for (unsigned n = 0; (n == 0 || n < w.places) && one(&o, &at, &w, n);
             n += walk_step(&w, calls[i].each))
            ;
        printf("%s: killed in it\n", calls[i].name);
        close(o.listener);
    }
    return 0;
}
