/*
 * many_pieces.c - two threads that write messages of twenty pieces each: each message is whole, as the kernel has it.
 */
#include "say.h"

#include <pthread.h>
#include <sys/uio.h>

enum {
    PIECES = 20,
    LENGTH = 10,
    MESSAGES = 500 /* as many as a ring takes: who has to wait lets others in, as in TCP */
};

static int p[2];

static void *writer(void *which)
{
    char bytes[LENGTH];
    struct iovec v[PIECES];

    memset(bytes, *(char *)which, sizeof(bytes));
    for (int i = 0; i < PIECES; i++)
        v[i] = (struct iovec){bytes, sizeof(bytes)};
    for (int i = 0; i < MESSAGES; i++)
        must(writev(p[0], v, PIECES) == PIECES * LENGTH, "writev");
    return NULL;
}

int main(void)
{
    static char names[2] = "ab";
    char message[PIECES * LENGTH];
    pthread_t t[2];
    int mixed = 0;

    tcp_pair(p);
    for (int i = 0; i < 2; i++)
        must(pthread_create(&t[i], NULL, writer, &names[i]) == 0, "thread");
    for (int i = 0; i < 2 * MESSAGES; i++) {
        must(recv(p[1], message, sizeof(message), MSG_WAITALL) == sizeof(message), "recv");
        for (size_t j = 1; j < sizeof(message); j++)
            if (message[j] != message[0]) {
                mixed++;
                break;
            }
    }
    for (int i = 0; i < 2; i++)
        pthread_join(t[i], NULL);
    printf("mixed: %d\n", mixed);
    return 0;
}
