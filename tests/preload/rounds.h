/*
 * rounds.h - for the programs about signals: a thread that is sent signals while it is in a call, a
 * call on a stream that is really on a rail, and a deadline of the program's own.
 */
#ifndef TESTS_PRELOAD_ROUNDS_H
#define TESTS_PRELOAD_ROUNDS_H

#include "asleep.h"
#include "pair.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/syscall.h>

/* Bytes that the kernel's TCP has sent for fd, asked past the library. */
static inline unsigned long long tcp_sent(int fd)
{
    /* tcpi_bytes_sent is at byte 200 of the kernel's struct tcp_info, of which libc's is the beginning. */
    unsigned long long ti[64] = {0};
    socklen_t len = sizeof(ti);

    must(syscall(SYS_getsockopt, fd, IPPROTO_TCP, TCP_INFO, ti, &len) == 0, "TCP_INFO");
    return ti[200 / sizeof(ti[0])];
}

/* With the library in mode rail the stream must have left TCP, or the test tests nothing. */
static inline void on_rail(int p[2])
{
    char bytes[64] = "over the rail, if there is one";
    const char *mode = getenv("RAILSOCK_MODE");

    if (!mode || strcmp(mode, "rail") != 0)
        return;
    for (int i = 0; i < 2; i++) {
        unsigned long long before;
        int tries = 0;

        do {
            before = tcp_sent(p[i]);
            must(write(p[i], bytes, sizeof(bytes)) == sizeof(bytes), "write");
            must(recv(p[!i], bytes, sizeof(bytes), MSG_WAITALL) == sizeof(bytes), "recv");
            usleep(tries ? 2000 : 0);
        } while (tcp_sent(p[i]) != before && ++tries < 3000);
        if (tries == 3000)
            printf("direction %d is not on a rail\n", i);
    }
}

/* A thread in a call, round by round. */
struct victim {
    _Atomic int tid;
    _Atomic unsigned round;    /* it is in the call of this round, or about to be */
    _Atomic unsigned returned; /* of this one it has returned */
};

/* Or until the round is over. */
static inline void until_asleep(struct victim *v, unsigned round)
{
    while (v->returned < round && state_of(v->tid) != 'S')
        sched_yield();
}

static inline void hit(struct victim *v, int sig)
{
    syscall(SYS_tgkill, getpid(), v->tid, sig);
}

/* The program ends by itself if something hangs. */
static void *deadline(void *what)
{
    sigset_t all;

    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, NULL);
    sleep(50);
    printf("HANGS: %s\n", *(const char *_Atomic *)what);
    fflush(stdout);
    _exit(3);
}

static const char *_Atomic doing = "";

static inline void start_deadline(void)
{
    pthread_t t;

    setvbuf(stdout, NULL, _IOLBF, 0);
    pthread_create(&t, NULL, deadline, (void *)&doing);
}

/* Long spins, so that signals find threads that spin. The library reads it when it is loaded. */
static inline void with_spin(char **argv, const char *us)
{
    if (getenv("RAILSOCK_SPIN"))
        return;
    setenv("RAILSOCK_SPIN", us, 1);
    execv("/proc/self/exe", argv);
    give_up("exec");
}

#endif
