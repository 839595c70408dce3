/*
 * shared_table.c - a process with its parent's table of descriptors takes one of its own by
 * close_range, and what it closes stays open in the parent's.
 */
#include "say.h"

#include <linux/close_range.h>

static int closes(void *fd)
{
    SHOW(close_range((unsigned)*(int *)fd, 1000, CLOSE_RANGE_UNSHARE));
    fflush(stdout);
    return 0;
}

int main(void)
{
    static char stack[65536] __attribute__((aligned(16)));
    int pipes[2], p[2];
    pid_t pid;

    must(pipe(pipes) == 0, "pipe");
    for (int round = 0; round < 2; round++) {
        if (round) {
            tcp_pair(p);
            on_rail(p);
        }
        fflush(stdout);
        pid = clone(closes, stack + sizeof(stack), CLONE_FILES | SIGCHLD, &pipes[1]);
        must(pid > 0, "clone");
        ended(pid);
        SHOW(write(pipes[1], "x", 1));
        if (round)
            talk(p, "all that there is");
    }
    SHOW(close_range(900, 1000, CLOSE_RANGE_UNSHARE));
    talk(p, "and by TCP at last");
    return 0;
}
