/*
 * closed_by_dup2.c - a thread polls a connection, and another one puts something else in the place of its number and then
 * signals it, as Java closes sockets: the call ends by that signal, and not when some time is over.
 */
#include "rounds.h"

#include <errno.h>
#include <poll.h>
#include <sys/resource.h>

static int p[2];
static struct victim v;
static volatile sig_atomic_t came;

static void note(int sig)
{
    (void)sig;
    came = 1;
}

static long cpu_us(void)
{
    struct rusage u;

    must(getrusage(RUSAGE_THREAD, &u) == 0, "getrusage");
    return u.ru_utime.tv_sec * 1000000 + u.ru_utime.tv_usec + u.ru_stime.tv_sec * 1000000 +
           u.ru_stime.tv_usec;
}

static void *polls(void *unused)
{
    struct pollfd f = {.fd = p[1], .events = POLLIN};
    long before = cpu_us();
    int n;

    (void)unused;
    v.tid = gettid();
    v.round = 1;
    n = poll(&f, 1, 30000);
    /* What it is told of the number depends on when it looks; and it has not looked for long. */
    printf("%s, at once %d\n", came || n > 0 ? "ended" : "not ended", cpu_us() - before < 30000);
    v.returned = 1;
    return NULL;
}

int main(void)
{
    struct sigaction sa = {.sa_handler = note};
    int marker[2];
    pthread_t t;

    start_deadline();
    must(sigaction(SIGUSR2, &sa, NULL) == 0, "sigaction");
    must(socketpair(AF_UNIX, SOCK_STREAM, 0, marker) == 0, "marker");
    tcp_pair(p);
    on_rail(p);
    must(pthread_create(&t, NULL, polls, NULL) == 0, "thread");
    while (!v.round)
        sched_yield();
    until_fast_asleep(&v, 1);
    must(dup2(marker[0], p[1]) == p[1], "dup2");
    pthread_kill(t, SIGUSR2);
    must(pthread_join(t, NULL) == 0, "join");
    return 0;
}
