/*
 * echoes.h - what a plugin's constructor does, and the program beside it: the first calls of a TCP
 * pair of its own.
 */
#ifndef TESTS_PRELOAD_PLUGIN_ECHOES_H
#define TESTS_PRELOAD_PLUGIN_ECHOES_H

#include "../pair.h"

#include <pthread.h>

static inline void *echoes(void *unused)
{
    struct sockaddr_in at;
    int l = listener(&at), p[2];

    pair_at(l, &at, p);
    for (int i = 0; i < 20; i++) {
        char byte = (char)('a' + i), got = 0;

        must(write(p[0], &byte, 1) == 1 && read(p[1], &got, 1) == 1 && got == byte, "there");
        must(write(p[1], &got, 1) == 1 && read(p[0], &byte, 1) == 1 && got == byte, "and back");
    }
    close(p[0]);
    close(p[1]);
    close(l);
    return unused;
}

#endif
