/*
 * behind_unread.c - options and calls that see what the kernel has, or take it, while a switch lies
 * behind unread bytes: none of them meets the frame.
 */
#include "crossed.h"

#include <aio.h>
#include <linux/filter.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/uio.h>

enum { PAIRS = 3, MOST_PAIRS = 100 /* until one has crossed, on a busy machine */ };

/* The rest comes from byte `at` on by recv. */
static bool rest(int fd, size_t at)
{
    char got[ALL];
    ssize_t n = 1;

    for (; at < ALL && n > 0; at += n > 0 ? (size_t)n : 0) {
        n = recv(fd, got, 33, 0);
        for (ssize_t i = 0; i < n; i++)
            if (got[i] != sent_byte(at + (size_t)i))
                return false;
    }
    return at == ALL && recv(fd, got, 1, MSG_DONTWAIT) == -1 && errno == EAGAIN;
}

static bool right_bytes(const char *got, size_t n, size_t at)
{
    for (size_t i = 0; i < n; i++)
        if (got[i] != sent_byte(at + i))
            return false;
    return true;
}

/* As long as the kernel may say so, for a usual receive. */
static bool mapped(int fd)
{
    struct {
        uint64_t address;
        uint32_t length, skip, inq;
        int32_t err;
        uint64_t copy;
        int32_t copied;
        uint32_t flags;
    } z;
    void *page = mmap(NULL, 65536, PROT_READ, MAP_SHARED, fd, 0);
    char got[ALL + 64];
    size_t at = 0;

    must(page != MAP_FAILED, "mmap");
    while (at < ALL) {
        socklen_t len = sizeof(z);
        ssize_t n;

        memset(&z, 0, sizeof(z));
        z.address = (uintptr_t)page;
        z.copy = (uintptr_t)got;
        z.copied = sizeof(got);
        if (getsockopt(fd, IPPROTO_TCP, TCP_ZEROCOPY_RECEIVE, &z, &len) < 0 || z.err)
            return false;
        n = z.copied;
        if (n == 0)
            n = recv(fd, got, z.skip ? z.skip : 1, 0);
        if (n <= 0 || !right_bytes(got, (size_t)n, at))
            return false;
        at += (size_t)n;
    }
    munmap(page, 65536);
    return rest(fd, at);
}

static int peek_off(int fd)
{
    int off = 0;
    socklen_t len = sizeof(off);

    must(getsockopt(fd, SOL_SOCKET, SO_PEEK_OFF, &off, &len) == 0, "SO_PEEK_OFF");
    return off;
}

static bool peeked_on(int fd)
{
    int from = 5;
    char got[ALL];
    size_t at = 5;
    ssize_t n;

    if (setsockopt(fd, SOL_SOCKET, SO_PEEK_OFF, &from, sizeof(from)) < 0)
        return errno == EOPNOTSUPP; /* before Linux 6.9 */
    for (; at < ALL; at += (size_t)n) {
        n = recv(fd, got, 70, MSG_PEEK);
        if (n <= 0 || !right_bytes(got, (size_t)n, at))
            return false;
    }
    if (peek_off(fd) != ALL || recv(fd, got, 1, MSG_PEEK | MSG_DONTWAIT) != -1 || errno != EAGAIN)
        return false;
    if (recv(fd, got, 7, 0) != 7 || !right_bytes(got, 7, 0) || peek_off(fd) != ALL - 7)
        return false;
    from = 3;
    must(setsockopt(fd, SOL_SOCKET, SO_PEEK_OFF, &from, sizeof(from)) == 0, "SO_PEEK_OFF");
    if (recv(fd, got, 2, MSG_PEEK) != 2 || !right_bytes(got, 2, 10) || peek_off(fd) != 5)
        return false;
    if (!rest(fd, 7) || peek_off(fd) != 0)
        return false;
    from = -1;
    return setsockopt(fd, SOL_SOCKET, SO_PEEK_OFF, &from, sizeof(from)) == 0;
}

static bool read_with_flags(int fd)
{
    char got[30];
    struct iovec v = {got, sizeof(got)};
    size_t at = 0;

    while (at < ALL) {
        ssize_t n = preadv2(fd, &v, 1, -1, RWF_NOWAIT | RWF_HIPRI);

        if (n < 0 && errno == EAGAIN)
            continue;
        if (n <= 0 || !right_bytes(got, (size_t)n, at))
            return false;
        at += (size_t)n;
    }
    return preadv2(fd, &v, 1, -1, 0x4000) == -1 && errno == EOPNOTSUPP &&
           preadv2(fd, &v, 1, -1, RWF_NOWAIT) == -1 && errno == EAGAIN;
}

/* Twice the bytes of a frame beyond the level: neither poll nor epoll counts it. */
static bool by_level(int fd)
{
    int low = ALL + 64, epfd = epoll_create1(0);
    struct epoll_event ev = {.events = EPOLLIN};
    struct pollfd p = {fd, POLLIN, 0};
    bool right;

    must(setsockopt(fd, SOL_SOCKET, SO_RCVLOWAT, &low, sizeof(low)) == 0, "SO_RCVLOWAT");
    must(epoll_ctl(epfd, EPOLL_CTL_ADD, fd, &ev) == 0, "epoll");
    right = poll(&p, 1, 20) == 0 && epoll_wait(epfd, &ev, 1, 20) == 0;
    low = 1;
    must(setsockopt(fd, SOL_SOCKET, SO_RCVLOWAT, &low, sizeof(low)) == 0, "SO_RCVLOWAT");
    right = right && poll(&p, 1, -1) == 1 && epoll_wait(epfd, &ev, 1, -1) == 1;
    close(epfd);
    return right && rest(fd, 0);
}

/* By calls that nobody sees. */
static bool by_system_call(int fd)
{
    char got[7] = "";

    /* Not libc's function of that name either, of which the library knows. */
#if defined(__aarch64__)
    register long nr __asm__("x8") = SYS_read, n __asm__("x0") = fd;
    register char *to __asm__("x1") = got;
    register size_t most __asm__("x2") = sizeof(got);

    __asm__ volatile("svc #0" : "+r"(n) : "r"(nr), "r"(to), "r"(most) : "memory");
#else
    long n;

    __asm__ volatile("syscall"
                     : "=a"(n)
                     : "a"(SYS_read), "D"((long)fd), "S"(got), "d"(sizeof(got))
                     : "rcx", "r11", "memory");
#endif
    return n == sizeof(got) && right_bytes(got, sizeof(got), 0) && rest(fd, sizeof(got));
}

static bool by_aio(int fd)
{
    char got[9] = "";
    struct aiocb cb = {.aio_fildes = fd, .aio_buf = got, .aio_nbytes = sizeof(got)};
    const struct aiocb *list[] = {&cb};

    must(aio_read(&cb) == 0, "aio_read");
    while (aio_error(&cb) == EINPROGRESS)
        aio_suspend(list, 1, NULL);
    return aio_return(&cb) == sizeof(got) && right_bytes(got, sizeof(got), 0) &&
           rest(fd, sizeof(got));
}

static const struct {
    const char *name;
    bool (*fn)(int fd);
} ways[] = {{"TCP_ZEROCOPY_RECEIVE", mapped}, {"SO_PEEK_OFF", peeked_on},
            {"preadv2", read_with_flags},     {"SO_RCVLOWAT", by_level},
            {"read, unseen", by_system_call}, {"aio_read", by_aio}};
enum { WAYS = sizeof(ways) / sizeof(ways[0]) };

/* What is on a rail has left it before a filter can drop what hands it over. */
static void filtered(void)
{
    struct sock_filter drop = {BPF_RET | BPF_K, 0, 0, 0};
    struct sock_fprog program = {1, &drop};
    char got[64];
    int p[2];

    tcp_pair(p);
    on_rail(p);
    deliver(p[0], p[1], "unread");
    SHOW(setsockopt(p[1], SOL_SOCKET, SO_ATTACH_FILTER, &program, sizeof(program)));
    SHOW(recv(p[1], got, sizeof(got), MSG_DONTWAIT));
}

int main(void)
{
    int right[WAYS] = {0}, switches[WAYS] = {0};

    for (int i = 0; i < MOST_PAIRS; i++)
        for (int way = 0; way < WAYS; way++) {
            bool crossed, good;
            int p[2];

            if (i >= PAIRS && (switches[way] || !mode_rail()))
                continue;
            crossed = unread_pair(p);
            good = ways[way].fn(p[0]);
            if (i < PAIRS)
                right[way] += good;
            else
                right[way] -= !good;
            switches[way] += crossed;
            close(p[0]);
            close(p[1]);
        }
    for (int i = 0; i < WAYS; i++) {
        printf("%s: %d of %d right\n", ways[i].name, right[i], PAIRS);
        if (mode_rail() && switches[i] == 0)
            puts("no switch behind unread bytes");
    }
    filtered();
    return 0;
}
