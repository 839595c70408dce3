/* numbers.c - rows: connections and their settings, descriptors. */
#define _GNU_SOURCE
#include "rows.h"

#include <mqueue.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/pidfd.h>
#include <sys/syscall.h>

/* ---- connections, each made by the symbol; that it boards shows that it is tracked ---- */

static int l;
static struct sockaddr_in to;

static void connected(int a, int b)
{
    close(l);
    rows_over();
    c = a, s = b;
    must(c >= 0 && s >= 0, "connection");
    rows_fresh();
}

ROW(socket, )
{
    int fd = SYM(socket)(AF_INET, SOCK_STREAM, 0);

    l = listener(&to);
    SHOW(connect(fd, (struct sockaddr *)&to, sizeof(to)));
    connected(fd, accept(l, NULL, NULL));
}

static int unconnected(void)
{
    l = listener(&to);
    return socket(AF_INET, SOCK_STREAM, 0);
}

ROW(connect, )
{
    int fd = unconnected();

    SHOW(SYM(connect)(fd, (struct sockaddr *)&to, sizeof(to)));
    connected(fd, accept(l, NULL, NULL));
}

ROW(__connect, )
{
    int fd = unconnected();

    SHOW(SYM(__connect)(fd, (struct sockaddr *)&to, sizeof(to)));
    connected(fd, accept(l, NULL, NULL));
}

ROW(listen, )
{
    int fd = unconnected();

    SHOW(SYM(listen)(l, 5));
    SHOW(connect(fd, (struct sockaddr *)&to, sizeof(to)));
    connected(fd, accept(l, NULL, NULL));
}

ROW(accept, )
{
    int fd = unconnected();

    SHOW(connect(fd, (struct sockaddr *)&to, sizeof(to)));
    connected(fd, SYM(accept)(l, NULL, NULL));
}

ROW(accept4, )
{
    int fd = unconnected();

    SHOW(connect(fd, (struct sockaddr *)&to, sizeof(to)));
    connected(fd, SYM(accept4)(l, NULL, NULL, SOCK_CLOEXEC));
}

ROW(shutdown, )
{
    char byte;

    deliver(c, s, "the end");
    SHOW(SYM(shutdown)(c, SHUT_WR));
    rows_hear(s, 7);
    SHOW(read(s, &byte, 1));
    SHOW(write(s, "x", 1));
    rows_hear(c, 1);
    rows_over();
}

/* ---- settings ---- */

ROW(getsockopt, )
{
    int value = 0;
    socklen_t len = sizeof(value);

    SHOW(SYM(getsockopt)(c, SOL_SOCKET, SO_TYPE, &value, &len));
    printf("  %d\n", value == SOCK_STREAM);
    SHOW(SYM(getsockopt)(c, SOL_SOCKET, SO_ERROR, &value, &len));
    printf("  %d\n", value);
}

/* linux/tcp.h cannot be had beside netinet/tcp.h. */
struct zerocopy {
    uint64_t address;
    uint32_t length, skip, inq;
    int32_t err;
    uint64_t copy;
    int32_t copied;
    uint32_t flags;
    uint64_t control, control_len;
    uint32_t control_flags, reserved;
};

static void zerocopy(long (*get)(struct zerocopy *, socklen_t *))
{
    char text[64] = "";
    struct zerocopy z = {.copy = (uintptr_t)text, .copied = 20, .length = 4096};
    socklen_t len = sizeof(z);
    void *at = mmap(NULL, 4096, PROT_READ, MAP_SHARED, s, 0);

    must(at != MAP_FAILED, "mmap");
    z.address = (uintptr_t)at;
    deliver(c, s, "by getsockopt");
    SHOW(get(&z, &len));
    printf("  %d [%s]\n", z.copied, text);
    munmap(at, 4096);
    if (z.copied != 13)
        rows_hear(s, 13);
}

static long by_name(struct zerocopy *z, socklen_t *len)
{
    return SYM(getsockopt)(s, IPPROTO_TCP, TCP_ZEROCOPY_RECEIVE, z, len);
}

static long by_number(struct zerocopy *z, socklen_t *len)
{
    return SYM(syscall)(SYS_getsockopt, s, IPPROTO_TCP, TCP_ZEROCOPY_RECEIVE, z, len);
}

ROW(getsockopt, zerocopy)
{
    zerocopy(by_name);
}
ROW(syscall, zerocopy)
{
    zerocopy(by_number);
}

ROW(setsockopt, )
{
    SHOW(SYM(setsockopt)(c, IPPROTO_TCP, TCP_NODELAY, &(int){1}, sizeof(int)));
    SHOW(SYM(setsockopt)(c, IPPROTO_TCP, TCP_NODELAY, &(int){1}, 1));
}

ROW(setsockopt, peek_off)
{
    SHOW(SYM(setsockopt)(s, SOL_SOCKET, SO_PEEK_OFF, &(int){0}, sizeof(int)));
}

ROW(ioctl, )
{
    int n = -1;

    deliver(c, s, "count");
    SHOW(SYM(ioctl)(s, FIONREAD, &n));
    printf("  %d\n", n);
    rows_hear(s, 5);
}

ROW(ioctl, mark)
{
    int n = -1;

    SHOW(SYM(ioctl)(s, SIOCATMARK, &n));
    printf("  %d\n", n);
}

ROW(sockatmark, )
{
    SHOW(SYM(sockatmark)(s));
}

/* ---- numbers ---- */

/* Another number for c: it works, and closing it changes nothing. */
static void another(int fd)
{
    printf("  %d\n", fd >= 0);
    SHOW(write(fd, "another", 7));
    rows_hear(s, 7);
    SHOW(close(fd));
}

ROW(dup, )
{
    another(SYM(dup)(c));
}
ROW(dup2, )
{
    another(SYM(dup2)(c, 50));
}
ROW(__dup2, )
{
    another(SYM(__dup2)(c, 51));
}
ROW(dup3, )
{
    another(SYM(dup3)(c, 52, O_CLOEXEC));
}
ROW(fcntl, )
{
    another(SYM(fcntl)(c, F_DUPFD_CLOEXEC, 53));
}
ROW(fcntl64, )
{
    another(SYM(fcntl64)(c, F_DUPFD, 54));
}
ROW(__fcntl, )
{
    another(SYM(__fcntl)(c, F_DUPFD_CLOEXEC, 55));
}

ROW(fcntl, nonblock)
{
    char byte;

    SHOW(SYM(fcntl)(s, F_SETFL, O_NONBLOCK));
    SHOW(read(s, &byte, 1));
    SHOW(SYM(fcntl)(s, F_SETFL, 0));
}

ROW(pidfd_getfd, )
{
    int self = pidfd_open(getpid(), 0);

    another(SYM(pidfd_getfd)(self, c, 0));
    SHOW(SYM(pidfd_getfd)(self, 99, 0));
    close(self);
}

ROW(syscall, pidfd_getfd)
{
    int self = pidfd_open(getpid(), 0);

    another((int)SYM(syscall)(SYS_pidfd_getfd, self, c, 0));
    close(self);
}

ROW(close, )
{
    SHOW(SYM(close)(dup2(c, 60)));
}
ROW(__close, )
{
    SHOW(SYM(__close)(dup2(c, 61)));
}

ROW(mq_close, )
{
    SHOW(SYM(mq_close)(dup2(c, 64)));
    SHOW(SYM(mq_close)(64));
}

ROW(close_range, )
{
    dup2(c, 62);
    SHOW(SYM(close_range)(62, 70, 0));
    SHOW(write(62, "x", 1));
}

static void close_from(void)
{
    dup2(c, 63);
    SYM(closefrom)(63);
    SHOW(write(63, "x", 1));
    SHOW(write(c, "x", 1));
    rows_hear(s, 1);
}

ROW(closefrom, )
{
    rows_apart(close_from);
}
