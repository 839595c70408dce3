/*
 * limits.c - a program that lowers its limit of descriptors below the library's numbers
 * while connections are in use: the numbers that it gets, and the point at which there are
 * no more, are its own.
 */
#include "say.h"

#include <fcntl.h>
#include <sys/resource.h>

/* How many numbers are left, and which. */
static void count(void)
{
    int fd[100], n = 0;

    while (n < 100 && (fd[n] = open("/dev/null", O_RDONLY)) >= 0)
        n++;
    must(n > 0 && n < 100, "open");
    printf("%d, from %d to %d, then %s\n", n, fd[0], fd[n - 1], strerrorname_np(errno));
    while (n)
        close(fd[--n]);
}

int main(void)
{
    struct rlimit low = {64, 64};
    char c;
    int p[2], q[2], r[2];

    tcp_pair(p);
    tcp_pair(r);
    talk(p, "before          ");
    SHOW(setrlimit(RLIMIT_NOFILE, &low));
    talk(p, "after           ");
    count();
    close(r[0]);
    printf("end: %zd\n", read(r[1], &c, 1));
    close(r[1]);
    may_board = false; /* no number is left for it */
    tcp_pair(q);
    printf("%d %d\n", q[0], q[1]);
    talk(q, "a new one       ");
    count();
    close(q[0]);
    printf("end: %zd\n", read(q[1], &c, 1));
    close(q[1]);
    count();
    close(p[0]);
    printf("end: %zd\n", read(p[1], &c, 1));
    return 0;
}
