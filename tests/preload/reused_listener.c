/*
 * reused_listener.c - a thread sleeps in accept, another one closes the listener's number and has a
 * connection under it: that stays what it is when the thread comes back, and what has been accepted
 * is a connection as any other.
 */
#include "../asleep.h"
#include "say.h"

#include <pthread.h>
#include <stdatomic.h>

static _Atomic int tid, got = -1;

static void *accepting(void *l)
{
    tid = (int)syscall(SYS_gettid);
    got = accept(*(int *)l, NULL, NULL);
    return NULL;
}

int main(void)
{
    struct sockaddr_in at, other;
    int l = listener(&at), l2 = listener(&other), p[2], q[2];
    pthread_t t;

    must(pthread_create(&t, NULL, accepting, &l) == 0, "pthread_create");
    while (!tid || state_of(tid) != 'S')
        sched_yield();
    close(l);
    pair_at(l2, &other, p);
    for (int i = 0; p[0] != l && i < TRIES_FOR_A_NUMBER; i++) {
        close(p[0]);
        close(p[1]);
        pair_at(l2, &other, p);
    }
    must(p[0] == l, "another number");
    warm(p);
    q[0] = socket(AF_INET, SOCK_STREAM, 0);
    must(connect(q[0], (struct sockaddr *)&at, sizeof(at)) == 0, "connect");
    pthread_join(t, NULL);
    q[1] = got;
    must(q[1] >= 0, "accept");
    talk(p, "by its number...");
    warm(q);
    talk(q, "what was accepted");
    close(p[0]);
    hear(p[1], "end of stream");
    return 0;
}
