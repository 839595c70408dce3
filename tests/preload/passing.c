/*
 * passing.c - a program that waits for each answer in an epoll instance of its own, made for that
 * and closed again, while its streams board: every answer comes. And one whose instance lives on,
 * but gives the stream away between answers.
 */
#include "pair.h"

#include <pthread.h>
#include <sys/epoll.h>

enum { STREAMS = 20, ANSWERS = 300, SIZE = 64 };

static void *echo(void *arg)
{
    int fd = *(int *)arg;
    char bytes[SIZE];

    while (recv(fd, bytes, SIZE, MSG_WAITALL) == SIZE)
        must(write(fd, bytes, SIZE) == SIZE, "echo");
    return NULL;
}

static bool answered(int ep, int fd, int i)
{
    struct epoll_event ev = {.events = EPOLLIN, .data.u64 = 7};
    char out[SIZE], in[SIZE];

    memset(out, 'a' + i % 26, SIZE);
    must(epoll_ctl(ep, EPOLL_CTL_ADD, fd, &ev) == 0, "EPOLL_CTL_ADD");
    must(write(fd, out, SIZE) == SIZE, "write");
    if (epoll_wait(ep, &ev, 1, 10000) != 1)
        return false;
    /* In two parts, as a head and a body. */
    must(recv(fd, in, 4, 0) == 4 && epoll_wait(ep, &ev, 1, 10000) == 1, "the rest");
    must(recv(fd, in + 4, SIZE - 4, 0) == SIZE - 4, "recv");
    must(epoll_ctl(ep, EPOLL_CTL_DEL, fd, NULL) == 0, "EPOLL_CTL_DEL");
    return memcmp(in, out, SIZE) == 0;
}

int main(void)
{
    int right[2] = {0, 0}, keeps = epoll_create1(EPOLL_CLOEXEC);

    for (int s = 0; s < STREAMS; s++) {
        struct sockaddr_in at;
        int l = listener(&at), p[2], i;
        pthread_t t;

        pair_at(l, &at, p);
        close(l);
        must(pthread_create(&t, NULL, echo, &p[1]) == 0, "pthread_create");
        for (i = 0; i < ANSWERS; i++) {
            int ep = s % 2 ? keeps : epoll_create1(EPOLL_CLOEXEC);
            bool ok = answered(ep, p[0], i);

            if (!(s % 2))
                close(ep);
            if (!ok)
                break;
        }
        right[s % 2] += i == ANSWERS;
        shutdown(p[0], SHUT_RDWR);
        pthread_join(t, NULL);
        close(p[0]);
        close(p[1]);
    }
    printf("all answers: %d streams with an instance for each, %d with one for all\n", right[0],
           right[1]);
    return 0;
}
