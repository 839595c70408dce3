/*
 * cancelled.h - for programs that cancel their main thread at one instruction after another: its
 * connection, and the thread that cancels it and then uses what is left.
 */
#ifndef TESTS_PRELOAD_CANCELLED_H
#define TESTS_PRELOAD_CANCELLED_H

#include "rounds.h"
#include "walk.h"

enum { PIECE = 64, MOST = 4 * PIECE };

static int p[2];

static inline void write_piece(void)
{
    char some[PIECE] = "w";
    (void)!write(p[0], some, sizeof(some));
}
static inline void read_piece(void)
{
    char some[PIECE];
    (void)!read(p[1], some, sizeof(some));
}

static struct shared {
    volatile bool over; /* the call has returned */
    _Atomic int wish;   /* the main thread is to be cancelled now; 2: it has been */
} * both;

static pthread_t first;

static inline void connected(int of[2])
{
    tcp_pair(of);
    must(setsockopt(of[0], IPPROTO_TCP, TCP_NODELAY, &(int){1}, sizeof(int)) == 0, "TCP_NODELAY");
    on_rail(of);
}

/* The dynamic linker knows the functions, and read has something. (On arm64 nobody can be
 * unwound from it.) */
static inline void in_hand(void)
{
    int n;

    for (int i = 0; i < 2; i++)
        write_piece();
    read_piece();
    ioctl(p[1], FIONREAD, &n);
}

static inline void after(void)
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

/* Not traced: the main thread stands still meanwhile. then: with what is left. */
static inline void cancel_first(void (*then)(void))
{
    void *result;

    while (!both->wish)
        sched_yield();
    must(pthread_cancel(first) == 0, "pthread_cancel");
    both->wish = 2;
    must(pthread_join(first, &result) == 0 && result == PTHREAD_CANCELED, "join");
    then();
    _exit(0);
}

/* The child's main thread, on its rail, traced by its parent. */
static inline void to_be_cancelled(void *(*canceller)(void *))
{
    pthread_t t;

    must(ptrace(PTRACE_TRACEME, 0, NULL, NULL) == 0, "PTRACE_TRACEME");
    alarm(120);
    first = pthread_self();
    must(pthread_create(&t, NULL, canceller, NULL) == 0, "thread");
    connected(p);
    in_hand();
}

/* ---- who traces ---- */

/* False: it cannot. */
static inline bool may_trace(void)
{
    if (!CAN_WALK)
        return false;
    setvbuf(stdout, NULL, _IOLBF, 0);
    both = shared_by_all(sizeof(*both));
    return true;
}

static inline pid_t next_child(void)
{
    both->over = false;
    both->wish = 0;
    fflush(stdout);
    return fork();
}

/* From the child's raise to its n'th place. False: it was walked through, to learn
 * of the places. */
static inline bool at_place(struct walk *w, unsigned n, pid_t pid, int status)
{
    must(WIFSTOPPED(status) && WSTOPSIG(status) == SIGTRAP, "the child's raise");
    if (w->places) {
        run_to(pid, w->at[n]);
        return true;
    }
    walk(w, pid, &both->over);
    must(kill(pid, SIGKILL) == 0 && waitpid(pid, &status, 0) == pid, "SIGKILL");
    return false;
}

/* It is walked through, and the places are those right behind a system call. */
static inline void behind_system_calls(struct walk *w, pid_t pid, int status)
{
    unsigned n = 0;

    must(WIFSTOPPED(status) && WSTOPSIG(status) == SIGTRAP, "the child's raise");
    walk(w, pid, &both->over);
    for (unsigned i = 0; i < w->places; i++)
        if (is_behind_system_call(pid, w->at[i]))
            w->at[n++] = w->at[i];
    must(n > 0, "a system call");
    w->places = n;
    must(kill(pid, SIGKILL) == 0 && waitpid(pid, &status, 0) == pid, "SIGKILL");
}

static inline void cancel_it_there(void)
{
    both->wish = 1;
    while (both->wish != 2)
        sched_yield();
}

/* It goes on, with this signal, and all is as it should be. */
static inline void goes_well(const struct walk *w, unsigned n, pid_t pid, long sig,
                             const char *name)
{
    int status;

    must(ptrace(PTRACE_DETACH, pid, NULL, (void *)sig) == 0, "PTRACE_DETACH");
    must(waitpid(pid, &status, 0) == pid, "waitpid");
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
        printf("%s at place %u of %u: status %#x\n", name, n, w->places, (unsigned)status);
}

#endif
