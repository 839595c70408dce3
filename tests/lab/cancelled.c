/*
 * cancelled.c - cancelled ADDRESS: threads that are cancelled in the middle of a stream over verbs, at which moment ever, also in
 * the doorbell of a provider for which that is a write(2). Another thread goes on with the stream. Run by identity_lab_test.sh.
 */
#include "../preload/pair.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>

static int p[2];
static _Atomic int begun;

static void *round_and_round(void *unused)
{
    char bytes[64] = "";

    (void)unused;
    begun = 1;
    for (;;) {
        (void)!write(p[0], bytes, sizeof(bytes));
        (void)!recv(p[1], bytes, sizeof(bytes), 0);
    }
    return NULL;
}

int main(int argc, char **argv)
{
    struct sockaddr_in at = {.sin_family = AF_INET};
    socklen_t len = sizeof(at);
    int l = socket(AF_INET, SOCK_STREAM, 0);
    char left[4096];

    must(argc == 2 && inet_pton(AF_INET, argv[1], &at.sin_addr) == 1, "cancelled ADDRESS");
    must(bind(l, (struct sockaddr *)&at, len) == 0 && listen(l, 1) == 0, "listen");
    must(getsockname(l, (struct sockaddr *)&at, &len) == 0, "getsockname");
    alarm(100);
    for (useconds_t i = 0; i < 8; i++) {
        pthread_t t;

        pair_at(l, &at, p);
        warm(p);
        begun = 0;
        must(pthread_create(&t, NULL, round_and_round, NULL) == 0, "pthread_create");
        while (!begun)
            sched_yield();
        usleep(3000 + i * 777); /* somewhere in the calls */
        pthread_cancel(t);
        pthread_join(t, NULL);
        usleep(1000);
        while (recv(p[1], left, sizeof(left), MSG_DONTWAIT) > 0)
            ;
        deliver(p[0], p[1], "works");
        close(p[0]);
        close(p[1]);
    }
    return 0;
}
