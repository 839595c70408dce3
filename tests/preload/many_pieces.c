/*
 * many_pieces.c - two threads that write messages of twenty pieces each: each message is whole, as
 * the kernel has it. And a look at what is there through so many pieces shows it all.
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

static void look(int flags)
{
    char room[2 * PIECES * LENGTH] = "";
    struct iovec v[2 * PIECES];
    struct msghdr m = {.msg_iov = v, .msg_iovlen = 2 * PIECES};

    for (int i = 0; i < 2 * PIECES; i++)
        v[i] = (struct iovec){room + i * LENGTH, LENGTH};
    SHOW(recvmsg(p[1], &m, flags));
    printf("%.*s\n", (int)sizeof(room), room);
}

static void looks(void)
{
    char bytes[2 * PIECES * LENGTH];

    for (size_t i = 0; i < sizeof(bytes); i++)
        bytes[i] = (char)('a' + i % 26);
    must(write(p[0], bytes, sizeof(bytes)) == sizeof(bytes), "write");
    must(recv(p[1], (char[sizeof(bytes)]){0}, sizeof(bytes), MSG_PEEK | MSG_WAITALL) ==
             sizeof(bytes),
         "recv");
    look(MSG_PEEK);
    look(MSG_PEEK | MSG_WAITALL);
    look(0);
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
    looks();
    return 0;
}
