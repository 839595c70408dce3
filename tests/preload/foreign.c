/*
 * foreign.c - what else may be at work on a connection in the same process: an io_uring of the program's,
 * made where no wrapper sees it, and an epoll instance that came from another program.
 */
#include "pair.h"

#include "../../rsock/sys.h" /* system calls that no wrapper sees, as liburing makes them */

#include <fcntl.h>
#include <linux/io_uring.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>

/* One receive, submitted and waited for. */
static long ring_recv(int ring, struct io_uring_params *q, int fd, char *buf, unsigned n)
{
    size_t size = q->cq_off.cqes + q->cq_entries * sizeof(struct io_uring_cqe);
    size_t other = q->sq_off.array + q->sq_entries * 4;
    char *m = mmap(NULL, size > other ? size : other, PROT_READ | PROT_WRITE,
                   MAP_SHARED | MAP_POPULATE, ring, IORING_OFF_SQ_RING);
    struct io_uring_sqe *e = mmap(NULL, q->sq_entries * sizeof(*e), PROT_READ | PROT_WRITE,
                                  MAP_SHARED | MAP_POPULATE, ring, IORING_OFF_SQES);
    struct io_uring_cqe *c;
    unsigned *tail;

    must(m != MAP_FAILED && e != MAP_FAILED, "mmap");
    memset(e, 0, sizeof(*e));
    e->opcode = IORING_OP_RECV;
    e->fd = fd;
    e->addr = (unsigned long)buf;
    e->len = n;
    ((unsigned *)(m + q->sq_off.array))[0] = 0;
    tail = (unsigned *)(m + q->sq_off.tail);
    __atomic_store_n(tail, *tail + 1, __ATOMIC_RELEASE);
    must(sys_call6(SYS_io_uring_enter, ring, 1, 1, IORING_ENTER_GETEVENTS, 0, 0) == 1, "enter");
    c = (struct io_uring_cqe *)(m + q->cq_off.cqes);
    return c->res;
}

static void with_ring(long ring, struct io_uring_params *q)
{
    char buf[32] = "";
    int p[2];

    tcp_pair(p);
    must(write(p[0], "for the ring", 12) == 12, "write");
    printf("%ld [%s]\n", ring_recv((int)ring, q, p[1], buf, 12), buf);
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
        must(epoll_wait(ep, &got, 1, 3000) == 1 && got.data.u64 == 3, "event");
        must(read(p[1], &c, 1) == 1 && write(p[1], &c, 1) == 1 && read(p[0], &c, 1) == 1, "echo");
        usleep(1000);
    }
    puts("forty events");
}

int main(int argc, char **argv)
{
    struct io_uring_params q = {0};
    char number[16];
    long ring;
    int ep;

    if (argc > 1) {
        second_program(atoi(argv[1]));
        return 0;
    }
    may_board = false; /* whatever uses io_uring */
    ring = sys_call6(SYS_io_uring_setup, 4, (long)&q, 0, 0, 0, 0);
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
