/*
 * cancelled_anywhere.c - a thread that may be cancelled at any instruction, and is within a call on its connection, at one of its
 * instructions after another, in a child each. It ends, though it makes no other call, and the connection goes on.
 */
#include "rounds.h"
#include "walk.h"

enum { PIECE = 64, MOST = 4 * PIECE };

struct call {
    const char *name;
    void (*make)(void);
    unsigned each; /* of so many instructions one (walk_step) */
};

static int p[2];

static void write_piece(void)
{
    char some[PIECE] = "w";
    (void)!write(p[0], some, sizeof(some));
}
static void read_piece(void)
{
    char some[PIECE];
    (void)!read(p[1], some, sizeof(some));
}
static void count(void)
{
    int n;
    ioctl(p[1], FIONREAD, &n);
}

static const struct call calls[] = {
    {"write", write_piece, 16}, {"read", read_piece, 16}, {"FIONREAD", count, 48}};

static struct shared {
    volatile bool over; /* the call has returned */
    _Atomic int wish;   /* the main thread is to be cancelled now; 2: it has been */
} * both;

static pthread_t first;

static void after(void)
{
    const char word[] = "goes on";
    char got[MOST + sizeof(word)];
    size_t n = 0;
    ssize_t r;

    must(write(p[0], word, sizeof(word)) == sizeof(word), "write");
    do {
        must((r = read(p[1], got + n, sizeof(got) - n)) > 0, "read");
        n += (size_t)r;
    } while (n < sizeof(word) || memcmp(got + n - sizeof(word), word, sizeof(word)) != 0);
    must(close(p[0]) == 0 && read(p[1], got, 1) == 0 && close(p[1]) == 0, "close");
}

/* Not traced: the main thread stands still meanwhile. */
static void *canceller(void *unused)
{
    void *result;

    (void)unused;
    while (!both->wish)
        sched_yield();
    must(pthread_cancel(first) == 0, "pthread_cancel");
    both->wish = 2;
    must(pthread_join(first, &result) == 0 && result == PTHREAD_CANCELED, "join");
    after();
    _exit(0);
}

static void child(const struct call *c)
{
    pthread_t t;

    must(ptrace(PTRACE_TRACEME, 0, NULL, NULL) == 0, "PTRACE_TRACEME");
    alarm(120);
    first = pthread_self();
    must(pthread_create(&t, NULL, canceller, NULL) == 0, "thread");
    tcp_pair(p);
    must(setsockopt(p[0], IPPROTO_TCP, TCP_NODELAY, &(int){1}, sizeof(int)) == 0, "TCP_NODELAY");
    on_rail(p);
    for (int i = 0; i < 2; i++) /* the dynamic linker knows the functions, and read has something */
        write_piece();
    read_piece();
    must(pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, NULL) == 0, "type");
    raise(SIGTRAP);
    c->make();
    both->over = true;
    if (!both->wish)
        raise(SIGTRAP); /* it did not come by that instruction this time */
    for (;;)
        ;
}

/* One child, which is cancelled at its n'th place, or walked through. */
static void one(const struct call *c, struct walk *w, unsigned n)
{
    int status;
    pid_t pid;

    both->over = false;
    both->wish = 0;
    fflush(stdout);
    pid = fork();
    if (pid == 0) {
        child(c);
        _exit(1);
    }
    status = first_stop(pid);
    must(WIFSTOPPED(status) && WSTOPSIG(status) == SIGTRAP, "the child's raise");
    if (!w->places) {
        walk(w, pid, &both->over);
        must(kill(pid, SIGKILL) == 0 && waitpid(pid, &status, 0) == pid, "SIGKILL");
        return;
    }
    run_to(pid, w->at[n]);
    both->wish = 1;
    while (both->wish != 2)
        sched_yield();
    must(ptrace(PTRACE_DETACH, pid, NULL, NULL) == 0, "PTRACE_DETACH");
    must(waitpid(pid, &status, 0) == pid, "waitpid");
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
        printf("%s at place %u of %u: status %#x\n", c->name, n, w->places, (unsigned)status);
}

int main(void)
{
    static struct walk w;

    if (!CAN_WALK)
        return 0;
    setvbuf(stdout, NULL, _IOLBF, 0);
    both = shared_by_all(sizeof(*both));
    for (unsigned i = 0; i < sizeof(calls) / sizeof(calls[0]); i++) {
        w.places = 0;
        for (unsigned n = 0; n == 0 || n < w.places; n += walk_step(&w, calls[i].each))
            one(&calls[i], &w, n);
        printf("%s: cancelled in it\n", calls[i].name);
    }
    return 0;
}
