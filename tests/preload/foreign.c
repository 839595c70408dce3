/*
 * foreign.c - what else may be at work on a connection in the same process: an io_uring of the
 * program's, made where no wrapper sees it, and an epoll instance that came from another program.
 */
#include "pair.h"
#include "ring.h"

#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/wait.h>

static void with_ring(long ring, struct io_uring_params *q)
{
    char buf[32] = "";
    int p[2];

    tcp_pair(p);
    must(write(p[0], "for the ring", 12) == 12, "write");
    printf("%ld [%s]\n", ring_read((int)ring, q, p[1], buf, 12), buf);
    close(p[0]);
    printf("end: %zd\n", read(p[1], buf, sizeof(buf)));
    close(p[1]);
    close((int)ring);
}

/* The instance is known by number only. */
static void second_program(int ep)
{
    struct epoll_event ev = {.events = EPOLLIN, .data.u64 = 3}, got = {0};
    int p[2];
    char c;

    tcp_pair(p);
    must(epoll_ctl(ep, EPOLL_CTL_ADD, p[1], &ev) == 0, "add");
    for (int i = 0; i < 40; i++) {
        must(write(p[0], "x", 1) == 1, "write");
        must(epoll_wait(ep, &got, 1, 30000) == 1 && got.data.u64 == 3, "event");
        must(read(p[1], &c, 1) == 1 && write(p[1], &c, 1) == 1 && read(p[0], &c, 1) == 1, "echo");
        usleep(1000);
    }
    puts("forty events");
}

int main(int argc, char **argv)
{
    struct io_uring_params q;
    char number[16];
    long ring;
    int ep;

    if (argc > 1) {
        second_program(atoi(argv[1]));
        return 0;
    }
    may_board = false; /* whatever uses io_uring */
    ring = ring_new(&q);
    if (ring >= 0)
        with_ring(ring, &q);
    memset(&q, 0, sizeof(q));
    ring = syscall(SYS_io_uring_setup, 4, &q);
    if (ring >= 0)
        with_ring(ring, &q);
    ep = epoll_create1(0);
    snprintf(number, sizeof(number), "%d", ep);
    fflush(stdout);
    execl("/proc/self/exe", argv[0], number, NULL);
    return 1;
}
