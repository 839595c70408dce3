/*
 * wide_sets.c - select and pselect with more numbers than a set has bits, as programs have it that
 * say getdtablesize() and may have many: the kernel looks no further than its table goes. The sets
 * end where memory ends.
 */
#include "say.h"

#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/select.h>

/* Three sets of 1,024 bits, and nothing behind them. */
static fd_set *sets_at_an_end(void)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    char *p = mmap(NULL, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    must(p != MAP_FAILED && mprotect(p + page, page, PROT_NONE) == 0, "mmap");
    return (fd_set *)(p + page) - 3;
}

static void look(const char *what, fd_set *sets, int in, int out, long us)
{
    struct timeval tv = {0, us};
    struct timespec ts = {0, us * 1000};

    for (int i = 0; i < 2; i++) {
        memset(sets, 0, 3 * sizeof(*sets));
        if (in >= 0)
            FD_SET(in, &sets[2]);
        if (out >= 0)
            FD_SET(out, &sets[1]);
        printf("%s: ", what);
        if (i)
            SHOW(pselect(30000, &sets[2], &sets[1], &sets[0], &ts, NULL));
        else
            SHOW(select(30000, &sets[2], &sets[1], &sets[0], &tv));
        for (int fd = 0; fd < FD_SETSIZE; fd++)
            if (FD_ISSET(fd, &sets[2]) || FD_ISSET(fd, &sets[1]) || FD_ISSET(fd, &sets[0]))
                printf("%s %d%d%d\n",
                       fd == in    ? "in"
                       : fd == out ? "out"
                                   : "?",
                       !!FD_ISSET(fd, &sets[2]), !!FD_ISSET(fd, &sets[1]),
                       !!FD_ISSET(fd, &sets[0]));
    }
}

/* Raw. */
static void look_past(fd_set *sets, int in)
{
    struct timespec ts = {0, 0};

    memset(sets, 0, 3 * sizeof(*sets));
    FD_SET(in, &sets[2]);
    SHOW(syscall(SYS_pselect6, 30000, &sets[2], NULL, NULL, &ts, NULL));
}

int main(void)
{
    fd_set *sets = sets_at_an_end();
    int p[2], pipes[2], far;

    must(pipe(pipes) == 0, "pipe");
    look("a pipe", sets, pipes[0], pipes[1], 1000);
    tcp_pair(p);
    look("a connection", sets, p[0], p[1], 1000);
    talk(p, "some more words ");
    look("one that is used", sets, p[0], p[1], 1000);
    look("no one", sets, p[0], -1, 1000);
    deliver(p[1], p[0], "words");
    look("one with bytes", sets, p[0], pipes[1], 1000);
    look("a pipe beside it", sets, pipes[0], pipes[1], 1000);
    look_past(sets, p[0]);
    hear(p[0], "end");
    /* A number beyond 1,023 makes the kernel's table larger, and sets have to be so too. */
    far = fcntl(p[0], F_DUPFD, 1500);
    if (far >= 0) {
        unsigned long wide[2048 / 64] = {0};
        struct timeval tv = {0, 1000};

        deliver(p[1], p[0], "more words");
        wide[far / 64] |= 1ul << (far % 64);
        SHOW(select(2048, (fd_set *)wide, NULL, NULL, &tv));
        printf("%d\n", (int)(wide[far / 64] >> (far % 64) & 1));
        hear(far, "far end");
    } else {
        puts("select(2048, (fd_set *)wide, NULL, NULL, &tv) = 1\n1\nfar end: 10 [more words]");
    }
    return 0;
}
