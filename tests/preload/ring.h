/*
 * ring.h - an io_uring as liburing has it: past the library.
 */
#ifndef TESTS_PRELOAD_RING_H
#define TESTS_PRELOAD_RING_H

#include "pair.h"

#include "../../rsock/sys.h" /* system calls that no wrapper sees */

#include <linux/io_uring.h>
#include <sys/mman.h>
#include <sys/syscall.h>

/* As io_uring_setup(2), with what it says in *q. */
static inline long ring_new(struct io_uring_params *q)
{
    memset(q, 0, sizeof(*q));
    return sys_call6(SYS_io_uring_setup, 4, (long)q, 0, 0, 0, 0);
}

/* One read from fd, from its position on, submitted and waited for: what read() gives. The
 * first of its ring. */
static inline long ring_read(int ring, struct io_uring_params *q, int fd, char *buf, unsigned n)
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
    e->opcode = IORING_OP_READ;
    e->fd = fd;
    e->off = (unsigned long)-1;
    e->addr = (unsigned long)buf;
    e->len = n;
    ((unsigned *)(m + q->sq_off.array))[0] = 0;
    tail = (unsigned *)(m + q->sq_off.tail);
    __atomic_store_n(tail, *tail + 1, __ATOMIC_RELEASE);
    must(sys_call6(SYS_io_uring_enter, ring, 1, 1, IORING_ENTER_GETEVENTS, 0, 0) == 1, "enter");
    c = (struct io_uring_cqe *)(m + q->cq_off.cqes);
    return c->res;
}

#endif
