/*
 * say.h - what is said on a connection, and by whom, printed: for the programs of this folder in
 * which the process becomes two, or another one.
 */
#ifndef TESTS_PRELOAD_SAY_H
#define TESTS_PRELOAD_SAY_H

#include "pair.h"

#include <sys/wait.h>

/* Round trips of 16 bytes, which are printed. */
static inline void talk(int p[2], const char *when)
{
    char buf[64];

    for (int i = 0; i < 30; i++)
        for (int j = 0; j < 2; j++) {
            must(write(p[j], when, 16) == 16, "write");
            must(recv(p[!j], buf, 16, MSG_WAITALL) == 16 && memcmp(buf, when, 16) == 0, "read");
        }
    printf("%.16s: the stream is whole\n", when);
}

/* One read, and what it gave. */
static inline void hear(int fd, const char *who)
{
    char buf[64];
    ssize_t n = read(fd, buf, sizeof(buf));

    if (n < 0)
        printf("%s: %s\n", who, strerrorname_np(errno));
    else
        printf("%s: %zd [%.*s]\n", who, n, (int)n, buf);
}

/* How a child has ended, clone's too. */
static inline void ended(pid_t pid)
{
    int status;

    must(waitpid(pid, &status, __WALL) == pid, "waitpid");
    printf("child: exited %d status %d\n", WIFEXITED(status), WEXITSTATUS(status));
}

/* Both processes write and read on the same connection. */
static inline void shared_by(pid_t (*make)(void), const char *how)
{
    int p[2];
    pid_t pid;

    printf("-- %s\n", how);
    fflush(stdout);
    tcp_pair(p);
    pid = make();
    if (pid == 0) {
        must(write(p[0], "from the child", 14) == 14, "child's write");
        _exit(7);
    }
    ended(pid);
    hear(p[1], "end");
    deliver(p[0], p[1], "from the parent");
    hear(p[1], "end");
    close(p[0]);
    hear(p[1], "end of stream");
    close(p[1]);
}

#endif
