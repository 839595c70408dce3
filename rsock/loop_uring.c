/*
 * loop_uring.c - the progress thread's waiting with io_uring. The few functions of liburing that
 * enter the kernel are a part of this object, under no name that anybody else sees (Makefile): to
 * open the shared library would cost every exec of every program, or, when the thread starts, wait
 * for whoever is inside dlopen.
 *
 * Each watch is a one-shot poll that is put back after its callback. The kernel tests
 * readiness when a poll is added, so this is level-triggered, which multishot is not.
 */
#include <errno.h>
#include <liburing.h>

#include "config/log.h"
#include "rsock/loop.h"
#include "rsock/loop_backend.h"
#include "rsock/own.h"
#include "rsock/sys.h"
#include "rsock/valgrind.h"

enum { ENTRIES = 256, BATCH = 64 };

#ifndef RAILSOCK_WITHOUT_URING

static struct io_uring ring;

static int uring_open(void)
{
    struct io_uring_params p = {0};
    int err, fd;

    /* its threads run one at a time, and it takes io_uring_enter for a call that does not sleep */
    if (rsk_under_valgrind())
        return -ENOSYS;
    rsk_own_enter();
    err = io_uring_queue_init_params(ENTRIES, &ring, &p);
    if (err < 0)
        goto out;
    /* A child's copy of the queues would be writable by both. */
    io_uring_ring_dontfork(&ring);
    fd = rsk_own_fd(sys_fcntl(ring.ring_fd, F_DUPFD_CLOEXEC, 3));
    if (fd < 0) {
        io_uring_queue_exit(&ring);
        err = fd;
        goto out;
    }
    sys_close(ring.ring_fd);
    ring.ring_fd = ring.enter_ring_fd = fd;
    err = 0;
out:
    rsk_own_leave();
    return err;
}

bool rsk_loop_maps(uintptr_t at)
{
    return loop_backend == &loop_uring &&
           (at == (uintptr_t)ring.sq.ring_ptr || at == (uintptr_t)ring.cq.ring_ptr ||
            at == (uintptr_t)ring.sq.sqes);
}

static struct io_uring_sqe *sqe_get(void)
{
    struct io_uring_sqe *sqe = io_uring_get_sqe(&ring);

    if (!sqe) {
        io_uring_submit(&ring);
        sqe = io_uring_get_sqe(&ring);
    }
    return sqe;
}

static int uring_add(struct rsk_watch *w)
{
    struct io_uring_sqe *sqe = sqe_get();

    if (!sqe)
        return -EBUSY;
    io_uring_prep_poll_add(sqe, w->fd, w->events);
    io_uring_sqe_set_data(sqe, w);
    w->pending = true;
    return 0;
}

static void uring_del(struct rsk_watch *w)
{
    struct io_uring_sqe *sqe;

    if (!w->pending)
        return;
    sqe = sqe_get();
    if (!sqe)
        return; /* the poll stays until the descriptor has news; the dead watch ignores it */
    io_uring_prep_poll_remove(sqe, (__u64)(uintptr_t)w);
    io_uring_sqe_set_data(sqe, NULL);
    /* At once: a poll in the kernel holds the file, and the caller is about to close it. */
    io_uring_submit(&ring);
}

static unsigned take(struct rsk_watch **w, int *res)
{
    struct io_uring_cqe *cqe;
    unsigned head, n = 0, seen = 0;

    io_uring_for_each_cqe(&ring, head, cqe)
    {
        if (n == BATCH)
            break;
        seen++;
        if (!cqe->user_data || cqe->user_data == LIBURING_UDATA_TIMEOUT)
            continue;
        w[n] = io_uring_cqe_get_data(cqe);
        res[n++] = cqe->res;
    }
    io_uring_cq_advance(&ring, seen);
    return n;
}

static void uring_pause(uint64_t ns)
{
    struct __kernel_timespec ts = {.tv_sec = (int64_t)(ns / 1000000000u),
                                   .tv_nsec = (long long)(ns % 1000000000u)};
    struct io_uring_cqe *cqe = NULL;
    struct rsk_watch *w[BATCH];
    int res[BATCH];
    unsigned n;
    int err =
        io_uring_submit_and_wait_timeout(&ring, &cqe, 1, ns == LOOP_FOREVER ? NULL : &ts, NULL);

    if (err < 0 && err != -ETIME && err != -EINTR && err != -EAGAIN && err != -EBUSY)
        loop_backoff(err); /* a seccomp filter that came later, say: do not spin on it */
    while ((n = take(w, res)))
        for (unsigned i = 0; i < n; i++) {
            w[i]->pending = false;
            if (w[i]->dead)
                continue;
            loop_event(w[i], res[i] < 0 ? (uint32_t)POLLERR : (uint32_t)res[i]);
            if (!w[i]->dead && uring_add(w[i]) < 0)
                loop_watch_later(w[i]);
        }
}

static void uring_close(void)
{
    int fd = sys_fcntl(ring.ring_fd, F_DUPFD_CLOEXEC, 512);

    /* queue_exit closes the number that we have noted; it must be un-noted first. */
    rsk_own_close(ring.ring_fd);
    ring.ring_fd = ring.enter_ring_fd = fd;
    io_uring_queue_exit(&ring);
}

const struct loop_backend loop_uring = {
    .name = "io_uring",
    .open = uring_open,
    .add = uring_add,
    .del = uring_del,
    .wait = uring_pause,
    .close = uring_close,
};

#else /* no liburing.a: nothing but open is called */

static int uring_open(void)
{
    return -ENOSYS;
}

bool rsk_loop_maps(uintptr_t at)
{
    (void)at;
    return false;
}

const struct loop_backend loop_uring = {.name = "io_uring", .open = uring_open};

#endif
