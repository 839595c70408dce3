/*
 * forked.h - for tests that fork: as the library's wrapper does it, without the wrapper.
 */
#ifndef TESTS_UNIT_FORKED_H
#define TESTS_UNIT_FORKED_H

#include <dirent.h>
#include <stdlib.h>
#include <unistd.h>

#include "rsock/loop.h"
#include "rsock/own.h"

static inline pid_t own_fork(void)
{
    pid_t child;

    rsk_own_fork_begin();
    child = fork();
    if (child)
        rsk_own_fork_end();
    else
        rsk_loop_after_fork_child();
    return child;
}

/* How many of the numbers where the library keeps its descriptors are open. */
static inline int hidden_fds(void)
{
    DIR *d = opendir("/proc/self/fd");
    struct dirent *e;
    int n = 0;

    while ((e = readdir(d)))
        n += atoi(e->d_name) >= 512;
    closedir(d);
    return n;
}

#endif
