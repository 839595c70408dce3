/*
 * main_ends.c - the main thread ends by pthread_exit, or because it is cancelled, and another one
 * goes on with a connection, or makes one only then. The process ends with the last thread, with
 * status 0 and its exit handlers.
 */
#include "../asleep.h"
#include "pair.h"

#include <pthread.h>
#include <sys/wait.h>

static int p[2];
static bool cancelled; /* the other thread ends the main one */
static pthread_t main_thread;

static void handler(void)
{
    puts("exit handlers run");
}

static void *other(void *unused)
{
    char buf[16];

    (void)unused;
    if (cancelled)
        must(pthread_cancel(main_thread) == 0, "pthread_cancel");
    while (state_of(getpid()) != 'Z') /* until the main thread has ended */
        sched_yield();
    may_board = false; /* nothing boards anew once the main thread has ended */
    if (!p[0])
        tcp_pair(p);
    for (int i = 0; i < 1000; i++) {
        must(write(p[0], "message", 7) == 7, "write");
        must(recv(p[1], buf, 7, MSG_WAITALL) == 7, "read");
    }
    close(p[0]);
    printf("end of stream: %zd\n", read(p[1], buf, sizeof(buf)));
    puts("the last thread ends");
    return NULL;
}

int main(void)
{
    pthread_t t;
    pid_t pid = 1;
    int status;

    for (int kind = 0; kind < 2 && pid > 0; kind++) {
        pid = fork();
        if (pid > 0) {
            must(waitpid(pid, &status, 0) == pid, "waitpid");
            printf("exited %d status %d\n", WIFEXITED(status), WEXITSTATUS(status));
            fflush(stdout);
        } else {
            cancelled = kind == 1;
        }
    }
    atexit(handler);
    if (pid > 0 || cancelled) /* else the other thread makes the connection, after this one's end */
        tcp_pair(p);
    main_thread = pthread_self();
    puts("the main thread ends");
    fflush(stdout);
    must(pthread_create(&t, NULL, other, NULL) == 0, "pthread_create");
    while (cancelled)
        pause();
    pthread_exit(NULL);
}
