/*
 * fork_storm.c - a program whose handler forks, at any moment of forks of its own, with a
 * connection open.
 */
#include "pair.h"

#include <signal.h>
#include <sys/time.h>
#include <sys/wait.h>

enum { FORKS = 600 };

static volatile sig_atomic_t by_handler;

static void fork_and_wait(void)
{
    pid_t pid = fork();

    if (pid == 0)
        _exit(0);
    must(pid > 0 && waitpid(pid, NULL, 0) == pid, "fork");
}

static void on_alarm(int sig)
{
    int err = errno;

    (void)sig;
    fork_and_wait();
    by_handler++;
    errno = err;
}

int main(void)
{
    struct sigaction act = {.sa_handler = on_alarm, .sa_flags = SA_RESTART};
    struct itimerval tick = {.it_value.tv_usec = 1}, none = {0};
    char b[16];
    int p[2];

    tcp_pair(p);
    sigaction(SIGALRM, &act, NULL);
    for (int i = 0; i < FORKS; i++) {
        tick.it_value.tv_usec = 1 + i % 100;
        setitimer(ITIMER_REAL, &tick, NULL);
        fork_and_wait();
    }
    setitimer(ITIMER_REAL, &none, NULL);
    printf("handlers have forked: %d\n", by_handler > 0);
    must(write(p[0], "still whole", 11) == 11 && recv(p[1], b, 11, MSG_WAITALL) == 11, "stream");
    printf("%.11s\n", b);
    return 0;
}
