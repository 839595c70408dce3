/*
 * lengths.c - lengths that no buffer has: what is an error takes nothing, wherever the bytes lie,
 * and what is none takes what there is.
 */
#include "pair.h"

static int p[2];
static char buf[1 << 16];
static char *volatile b = buf; /* whose size nobody checks before the call */

static void five(void)
{
    must(send(p[0], "hello", 5, 0) == 5 && recv(p[1], b, 5, MSG_PEEK) == 5, "five");
}

static void ask(void)
{
    volatile size_t all = SIZE_MAX, half = (size_t)1 << 63;

    five();
    SHOW(read(p[1], b, all));
    SHOW(read(p[1], b, half));
    SHOW(recv(p[1], b, 100, MSG_DONTWAIT));
    five();
    SHOW(recv(p[1], b, all, MSG_DONTWAIT));
    five();
    SHOW(recvfrom(p[1], b, half, 0, NULL, NULL));
    SHOW(write(p[0], b, all));
    SHOW(read(p[1], NULL, 0));
    SHOW(read(p[1], b, 0));
    SHOW(write(p[0], NULL, 0));
    SHOW(write(p[0], NULL, 5));
    SHOW(send(p[0], b, 0, 0));
    SHOW(sendto(p[0], b, 3, 0, NULL, 99999));
    SHOW(recv(p[1], b, 100, 0));
}

int main(void)
{
    tcp_pair(p);
    ask();
    /* Far enough that no checkpoint of the proof is near. */
    for (int i = 0; i < 1100; i++)
        must(send(p[0], b, 1000, 0) == 1000 && recv(p[1], b, 1000, MSG_WAITALL) == 1000, "pass");
    ask();
    return 0;
}
