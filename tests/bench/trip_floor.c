/*
 * trip_floor.c - the least that sockperf's round trip can cost over memory that two processes share: a library to preload
 * into both of its ends, for one connection. Each message is copied into a ring and its cursor stored; the other end looks at
 * the cursor until it moves, and copies the message out.
 *
 * No more than that: no full ring, no sleep, no credit, no signals, no other call than recv, recvfrom, send
 * and sendto, no way back to TCP, no close. Now and then a wait is interrupted, so that the program sees that it is to
 * end. tools/measure has sockperf run on it beside the rail.
 *
 * TRIP_FLOOR is the name of the memory, as shm_open(3) wants it; the accepting end removes it.
 */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

enum { RING = 65536, LINE = 64, LOOKS = 1 << 22 };

struct way {
    _Atomic uint64_t tail __attribute__((aligned(LINE)));
    char bytes[RING] __attribute__((aligned(LINE)));
};

static struct way *in, *out;
static uint64_t received, sent;
static int number = -1;

static void *next(const char *name)
{
    return dlsym(RTLD_NEXT, name);
}

static struct way *memory(void)
{
    const char *name = getenv("TRIP_FLOOR");
    int fd = name ? shm_open(name, O_RDWR | O_CREAT, 0600) : -1;
    struct way *both;

    if (fd < 0 || ftruncate(fd, 2 * sizeof(*both)) < 0)
        abort();
    both = mmap(NULL, 2 * sizeof(*both), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (both == MAP_FAILED)
        abort();
    close(fd);
    return both;
}

/* Before the other end can accept, so that it finds the memory. */
__attribute__((visibility("default"))) int connect(int fd, const struct sockaddr *addr,
                                                   socklen_t len)
{
    int (*real)(int, const struct sockaddr *, socklen_t) = next("connect");

    if (addr->sa_family == AF_INET && number < 0) {
        out = memory();
        in = out + 1;
        number = fd;
    }
    return real(fd, addr, len);
}

__attribute__((visibility("default"))) int accept(int fd, struct sockaddr *addr,
                                                  socklen_t *addr_len)
{
    int (*real)(int, struct sockaddr *, socklen_t *) = next("accept");
    int got = real(fd, addr, addr_len);

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
    size_t at = sent % RING, first = n < RING - at ? n : RING - at;

    memcpy(out->bytes + at, p, first);
    memcpy(out->bytes, (const char *)p + first, n - first);
    sent += n;
    atomic_store_explicit(&out->tail, sent, memory_order_release);
    return (ssize_t)n;
}

static ssize_t take(void *p, size_t n)
{
    size_t at = received % RING, first;
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
    first = n < RING - at ? n : RING - at;
    memcpy(p, in->bytes + at, first);
    memcpy((char *)p + first, in->bytes, n - first);
    received += n;
    return (ssize_t)n;
}

__attribute__((visibility("default"))) ssize_t sendto(int fd, const void *buf, size_t n, int flags,
                                                      const struct sockaddr *addr,
                                                      socklen_t addr_len)
{
    static ssize_t (*real)(int, const void *, size_t, int, const struct sockaddr *, socklen_t);

    if (__builtin_expect(fd == number, 1))
        return put(buf, n);
    if (!real)
        real = next("sendto");
    return real(fd, buf, n, flags, addr, addr_len);
}

__attribute__((visibility("default"))) ssize_t send(int fd, const void *buf, size_t n, int flags)
{
    return sendto(fd, buf, n, flags, NULL, 0);
}

__attribute__((visibility("default"))) ssize_t recvfrom(int fd, void *buf, size_t n, int flags,
                                                        struct sockaddr *addr, socklen_t *addr_len)
{
    static ssize_t (*real)(int, void *, size_t, int, struct sockaddr *, socklen_t *);

    if (__builtin_expect(fd == number, 1))
        return take(buf, n);
    if (!real)
        real = next("recvfrom");
    return real(fd, buf, n, flags, addr, addr_len);
}

__attribute__((visibility("default"))) ssize_t recv(int fd, void *buf, size_t n, int flags)
{
    return recvfrom(fd, buf, n, flags, NULL, NULL);
}
