/*
 * crawls.c - a blocking write of what TCP's buffers hold returns although the receiver takes the
 * bytes one after the other, and does not wait for it to come to the end.
 */
#include "pair.h"

#include <pthread.h>

enum { LENGTH = 1 << 20 };

static _Atomic size_t was_read;
static _Atomic bool over;

static void *crawls(void *arg)
{
    const struct timespec pause = {0, 2000000};
    char few[64];
    ssize_t n;

    while ((n = recv(*(int *)arg, few, sizeof(few), 0)) > 0) {
        was_read += (size_t)n;
        if (!over)
            nanosleep(&pause, NULL);
    }
    return NULL;
}

int main(void)
{
    static char bytes[LENGTH];
    pthread_t t;
    int p[2];

    tcp_pair(p);
    on_rail(p);
    must(pthread_create(&t, NULL, crawls, &p[1]) == 0, "pthread_create");
    SHOW(write(p[0], bytes, sizeof(bytes)));
    printf("%s\n", was_read < LENGTH / 4 ? "before a quarter was read" : "when a quarter was read");
    over = true;
    close(p[0]);
    pthread_join(t, NULL);
    printf("%s\n", was_read == LENGTH ? "all" : "not all");
    return 0;
}
