/*
 * jumped_unmapped.c - a handler jumps out of a poll, or of a select, whose set the program then
 * gives back; another connection boards meanwhile.
 */
#include "../asleep.h"
#include "pair.h"

#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/select.h>

enum { SIZE = 1 << 16 };

static sigjmp_buf out;
static int quiet;
static bool by_select;
static _Atomic int tid;
static _Atomic bool gone, over;

static void jump(int sig)
{
    (void)sig;
    siglongjmp(out, 1);
}

static void *sleeper(void *unused)
{
    void *set = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    struct pollfd *p = set;

    (void)unused;
    must(set != MAP_FAILED, "mmap");
    if (sigsetjmp(out, 1) == 0) {
        tid = gettid();
        if (by_select) {
            FD_SET(quiet, (fd_set *)set);
            select(quiet + 1, set, NULL, NULL, NULL);
        } else {
            *p = (struct pollfd){quiet, POLLIN, 0};
            poll(p, 1, -1);
        }
    }
    /* No call of this thread that the library sees says that it is out. */
    mprotect(set, SIZE, PROT_NONE); /* as munmap, but that nothing else comes there */
    gone = true;
    while (!over)
        sched_yield();
    return NULL;
}

static void once(int l, const struct sockaddr_in *at)
{
    int p[2], q[2];
    pthread_t t;

    pair_at(l, at, p);
    pair_at(l, at, q);
    quiet = p[1];
    tid = 0;
    gone = over = false;
    must(pthread_create(&t, NULL, sleeper, NULL) == 0, "pthread_create");
    until_it_sleeps(&tid);
    pthread_kill(t, SIGUSR1);
    while (!gone)
        sched_yield();
    on_rail(q);
    for (int i = 0; i < 100; i++) {
        pass(q, 0);
        pass(q, 1);
    }
    over = true;
    pthread_join(t, NULL);
    for (int i = 0; i < 2; i++) {
        close(p[i]);
        close(q[i]);
    }
    puts(by_select ? "select" : "poll");
}

int main(void)
{
    struct sockaddr_in at;
    int l = listener(&at);

    alarm(120);
    signal(SIGUSR1, jump);
    once(l, &at);
    by_select = true;
    once(l, &at);
    return 0;
}
