/*
 * cancelled.c - cancelled ADDRESS: threads that are cancelled in the middle of a stream over verbs,
 * at which moment ever, also in the doorbell of a provider for which that is a write(2). Another
 * thread goes on with the stream. Run by identity_lab_test.sh.
 */
#include "../preload/pair.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>

static int p[2];
static _Atomic unsigned rounds;

static void *round_and_round(void *asynchronous)
{
    char bytes[64] = "";

    if (asynchronous)
        pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, NULL);
    for (;; rounds++) {
        (void)!write(p[0], bytes, sizeof(bytes));
        (void)!recv(p[1], bytes, sizeof(bytes), 0);
    }
    return NULL;
}

/* What is sent now arrives, after whatever the cancelled thread has sent. */
static void goes_on(void)
{
    const char word[] = "works";
    char got[4096] = {0};
    size_t have = 0;

    must(write(p[0], word, sizeof(word)) == sizeof(word), "write");
    while (have < sizeof(word) || memcmp(got + have - sizeof(word), word, sizeof(word)) != 0) {
        ssize_t n = read(p[1], got + have, sizeof(got) - have);

        must(n > 0, "read");
        have += (size_t)n;
    }
}

int main(int argc, char **argv)
{
    struct sockaddr_in at = {.sin_family = AF_INET};
    socklen_t len = sizeof(at);
    int l = socket(AF_INET, SOCK_STREAM, 0);

    must(argc == 2 && inet_pton(AF_INET, argv[1], &at.sin_addr) == 1, "cancelled ADDRESS");
    must(bind(l, (struct sockaddr *)&at, len) == 0 && listen(l, 1) == 0, "listen");
    must(getsockname(l, (struct sockaddr *)&at, &len) == 0, "getsockname");
    alarm(100);
    for (unsigned i = 0; i < 8; i++) {
        pthread_t t;

        pair_at(l, &at, p);
        warm(p);
        rounds = 0;
        must(pthread_create(&t, NULL, round_and_round, i % 2 ? &i : NULL) == 0, "pthread_create");
        while (rounds < 3 + i)
            sched_yield();
        pthread_cancel(t);
        pthread_join(t, NULL);
        goes_on();
        close(p[0]);
        close(p[1]);
    }
    return 0;
}
