/*
 * main_ends_held.c - the main thread ends by pthread_exit while another one changes the process's
 * user again and again, for which the library's thread ends, and comes back. The process ends with
 * the last thread, with status 0.
 */
#include "../asleep.h"
#include "pair.h"

#include <pthread.h>
#include <signal.h>
#include <sys/wait.h>

static volatile bool ready;

static void *other(void *unused)
{
    (void)unused;
    while (state_of(getpid()) != 'Z') { /* until the main thread has ended */
        must(setuid(getuid()) == 0, "setuid");
        ready = true;
    }
    return NULL;
}

/* After so many microseconds. */
static void child(useconds_t pause)
{
    pthread_t t;
    int p[2];

    tcp_pair(p);
    must(pthread_create(&t, NULL, other, NULL) == 0, "thread");
    while (!ready)
        sched_yield();
    usleep(pause);
    pthread_exit(NULL);
}

/* A signal ends nobody who has only the library's thread left, which has them blocked. */
static int ended_with(pid_t pid)
{
    time_t since = time(NULL);
    int status;
    pid_t n;

    while ((n = waitpid(pid, &status, WNOHANG)) == 0 && others_run(since))
        ;
    if (n != pid)
        must(kill(pid, SIGKILL) == 0 && waitpid(pid, &status, 0) == pid, "SIGKILL");
    return status;
}

int main(void)
{
    enum { TIMES = 30 };
    int ended = 0, status;

    alarm(200);
    for (int i = 0; i < TIMES; i++) {
        pid_t pid = fork();

        if (pid == 0)
            child((useconds_t)i * 37);
        status = ended_with(pid);
        if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) {
            printf("ended with %#x\n", (unsigned)status);
            break;
        }
        ended++;
    }
    printf("%d ended with the last thread\n", ended);
    return 0;
}
