/*
 * rings.c - io_urings by liburing: one whose number the program closes once it is registered, and
 * one that is made when streams are on rails. And the question what the kernel's can do, which
 * moves no stream.
 */
#include "pair.h"

#include <dlfcn.h>
#include <liburing.h>
#include <poll.h>

static void *lib;

/* As a program that is linked to liburing would find it; or past the library. */
static void *find(bool linked, const char *name)
{
    void *found = dlsym(linked ? RTLD_DEFAULT : lib, name);

    must(found != NULL, name);
    return found;
}

#define FIND(linked, name) ((__typeof__(name) *)find(linked, #name))

static bool ring_new(struct io_uring *ring, bool linked)
{
    return FIND(linked, io_uring_queue_init)(8, ring, 0) == 0;
}

static int by_ring(struct io_uring *ring, struct io_uring_sqe *sqe)
{
    struct __kernel_timespec ts = {30, 0};
    struct io_uring_cqe *cqe;
    int r;

    (void)sqe;
    must(FIND(false, io_uring_submit)(ring) == 1, "submit");
    r = FIND(false, io_uring_wait_cqes)(ring, &cqe, 1, &ts, NULL);
    if (r == 0) {
        r = cqe->res;
        io_uring_cqe_seen(ring, cqe);
    }
    return r;
}

/* What is said by libc and by the ring in turn comes in order, and the ring hears what comes. */
static void use(struct io_uring *ring, int p[2])
{
    char buf[64] = "";
    int res;

    for (int i = 0; i < 3; i++) {
        struct io_uring_sqe *sqe = io_uring_get_sqe(ring);

        must(write(p[0], "libc", 4) == 4, "write");
        io_uring_prep_send(sqe, p[0], "ring", 4, 0);
        printf("sent: %d\n", by_ring(ring, sqe));
        for (int n = 0; n < 8; n += res) /* what the ring still does may cut a receive short */
            must((res = (int)recv(p[1], buf + n, (size_t)(8 - n), 0)) > 0, "recv");
        printf("%.8s\n", buf);
        must(write(p[0], "for the ring", 12) == 12, "write");
        sqe = io_uring_get_sqe(ring);
        io_uring_prep_poll_add(sqe, p[1], POLLIN);
        printf("polled: %x\n", by_ring(ring, sqe));
        sqe = io_uring_get_sqe(ring);
        io_uring_prep_recv(sqe, p[1], buf, 12, 0);
        res = by_ring(ring, sqe);
        printf("%d %.*s\n", res, res > 0 ? res : 0, buf);
    }
}

static void closed_number(void)
{
    struct io_uring ring;
    int p[2];

    may_board = false;
    if (!ring_new(&ring, false))
        return;
    if (FIND(false, io_uring_register_ring_fd)(&ring) == 1) {
        close(ring.ring_fd);
        tcp_pair(p);
        use(&ring, p);
        close(p[0]);
        close(p[1]);
    }
    /* There is no way to end it. */
}

static void afterwards(void)
{
    struct io_uring ring;
    int p[2];

    tcp_pair(p);
    if (ring_new(&ring, true)) {
        use(&ring, p);
        FIND(false, io_uring_queue_exit)(&ring);
    }
    close(p[0]);
    close(p[1]);
    /* What comes when it is gone. */
    tcp_pair(p);
    close(p[0]);
    close(p[1]);
}

static void only_asked(void)
{
    unsigned long long sent;
    int p[2];

    tcp_pair(p);
    printf("asked: %d\n", FIND(true, io_uring_get_probe)() != NULL);
    sent = tcp_sent(p[0]);
    pass(p, 0);
    if (mode_rail() && tcp_sent(p[0]) != sent)
        puts("it has left its rail");
    close(p[0]);
    close(p[1]);
}

int main(void)
{
    alarm(200);
    lib = dlopen("liburing.so.2", RTLD_NOW | RTLD_GLOBAL);
    if (!lib) {
        puts("no liburing");
        return 0;
    }
    only_asked();
    afterwards();
    closed_number();
    return 0;
}
