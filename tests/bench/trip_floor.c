/*
 * trip_floor.c - the least that sockperf's round trip can cost over memory that two processes
 * share: a library to preload into both of its ends, for one connection. Each message is copied
 * into a ring and its cursor stored; the other end looks at the cursor until it moves, and copies
 * the message out.
 *
 * No more than that: no full ring, no sleep, no credit, no signals, no other call than recv,
 * recvfrom, send and sendto, no way back to TCP, no close. Now and then a wait is interrupted, so
 * that the program sees that it is to end. tools/measure has sockperf run on it beside the rail.
 *
 * TRIP_FLOOR is the name of the memory, as shm_open(3) wants it; the accepting end removes it.
 */
#include <errno.h>
#include <stdatomic.h>
#include <sys/socket.h>

#include "floor.h"

enum { LINE = 64, LOOKS = 1 << 22 };

struct way {
    _Atomic uint64_t tail __attribute__((aligned(LINE)));
    char bytes[FLOOR_RING] __attribute__((aligned(LINE)));
};

static struct way *in, *out;
static uint64_t received, sent;
static int number = -1;

static struct way *memory(void)
{
    return floor_memory(getenv("TRIP_FLOOR"), 2 * sizeof(struct way), true);
}

/* Before the other end can accept, so that it finds the memory. */
EXPORT int connect(int fd, const struct sockaddr *addr, socklen_t len)
{
    if (addr->sa_family == AF_INET && number < 0) {
        out = memory();
        in = out + 1;
        number = fd;
    }
    return NEXT(connect)(fd, addr, len);
}

EXPORT int accept(int fd, struct sockaddr *addr, socklen_t *addr_len)
{
    int got = NEXT(accept)(fd, addr, addr_len);

    if (got >= 0 && number < 0) {
        in = memory();
        out = in + 1;
        shm_unlink(getenv("TRIP_FLOOR"));
        number = got;
    }
    return got;
}

static ssize_t put(const void *p, size_t n)
{
    floor_put(out->bytes, sent, p, n);
    sent += n;
    atomic_store_explicit(&out->tail, sent, memory_order_release);
    return (ssize_t)n;
}

static ssize_t take(void *p, size_t n)
{
    uint64_t there;

    for (unsigned looks = 0;
         (there = atomic_load_explicit(&in->tail, memory_order_acquire)) == received; looks++) {
        if (looks == LOOKS) {
            errno = EINTR;
            return -1;
        }
#if defined(__x86_64__)
        __builtin_ia32_pause();
#endif
    }
    if (n > there - received)
        n = there - received;
    floor_take(p, in->bytes, received, n);
    received += n;
    return (ssize_t)n;
}

EXPORT ssize_t sendto(int fd, const void *buf, size_t n, int flags, const struct sockaddr *addr,
                      socklen_t addr_len)
{
    if (__builtin_expect(fd == number, 1))
        return put(buf, n);
    return NEXT(sendto)(fd, buf, n, flags, addr, addr_len);
}

EXPORT ssize_t send(int fd, const void *buf, size_t n, int flags)
{
    return sendto(fd, buf, n, flags, NULL, 0);
}

EXPORT ssize_t recvfrom(int fd, void *buf, size_t n, int flags, struct sockaddr *addr,
                        socklen_t *addr_len)
{
    if (__builtin_expect(fd == number, 1))
        return take(buf, n);
    return NEXT(recvfrom)(fd, buf, n, flags, addr, addr_len);
}

EXPORT ssize_t recv(int fd, void *buf, size_t n, int flags)
{
    return recvfrom(fd, buf, n, flags, NULL, NULL);
}
