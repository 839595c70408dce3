/*
 * options.c - socket options, fcntl and ioctl on a connection: socket(7), tcp(7), ip(7), fcntl(2).
 * Each is read, set and read again while the stream is in use, and bytes go through afterwards.
 */
#include "tests/conform/kit.h"

#include <linux/sockios.h>
#include <sys/stat.h>

static int p[2];

static void works(void)
{
    char buf[10] = "";

    must(send(p[0], "ping", 4, 0) == 4 && recv(p[1], buf, 4, MSG_WAITALL) == 4, "ping");
    must(send(p[1], "pong", 4, 0) == 4 && recv(p[0], buf, 4, MSG_WAITALL) == 4, "pong");
    say_bytes("works", buf, 4);
}

struct option {
    const char *name;
    int level, number, set; /* set: -1, it is only read */
    bool quiet;             /* its value is not the same each time */
};

static const struct option options[] = {
    {"SO_TYPE", SOL_SOCKET, SO_TYPE, -1, false},
    {"SO_DOMAIN", SOL_SOCKET, SO_DOMAIN, -1, false},
    {"SO_PROTOCOL", SOL_SOCKET, SO_PROTOCOL, -1, false},
    {"SO_ACCEPTCONN", SOL_SOCKET, SO_ACCEPTCONN, -1, false},
    {"SO_ERROR", SOL_SOCKET, SO_ERROR, -1, false},
    {"SO_PEERCRED", SOL_SOCKET, SO_PEERCRED, -1, true},
    {"SO_COOKIE", SOL_SOCKET, SO_COOKIE, -1, true},
    {"SO_INCOMING_CPU", SOL_SOCKET, SO_INCOMING_CPU, -1, true},
    {"SO_INCOMING_NAPI_ID", SOL_SOCKET, SO_INCOMING_NAPI_ID, -1, true},
    {"SO_MEMINFO", SOL_SOCKET, SO_MEMINFO, -1, true},
    {"SO_DEBUG", SOL_SOCKET, SO_DEBUG, 0, false},
    {"SO_REUSEADDR", SOL_SOCKET, SO_REUSEADDR, 1, false},
    {"SO_REUSEPORT", SOL_SOCKET, SO_REUSEPORT, 1, false},
    {"SO_KEEPALIVE", SOL_SOCKET, SO_KEEPALIVE, 1, false},
    {"SO_DONTROUTE", SOL_SOCKET, SO_DONTROUTE, 1, false},
    {"SO_BROADCAST", SOL_SOCKET, SO_BROADCAST, 1, false},
    {"SO_OOBINLINE", SOL_SOCKET, SO_OOBINLINE, 1, false},
    {"SO_PRIORITY", SOL_SOCKET, SO_PRIORITY, 3, false},
    {"SO_MARK", SOL_SOCKET, SO_MARK, 5, false},
    {"SO_RCVLOWAT", SOL_SOCKET, SO_RCVLOWAT, 4, false},
    {"SO_SNDLOWAT", SOL_SOCKET, SO_SNDLOWAT, 4, false},
    {"SO_SNDBUF", SOL_SOCKET, SO_SNDBUF, 50000, false},
    {"SO_RCVBUF", SOL_SOCKET, SO_RCVBUF, 50000, false},
    {"SO_SNDBUFFORCE", SOL_SOCKET, SO_SNDBUFFORCE, 60000, false},
    {"SO_RCVBUFFORCE", SOL_SOCKET, SO_RCVBUFFORCE, 60000, false},
    {"SO_TIMESTAMP", SOL_SOCKET, SO_TIMESTAMP, 1, false},
    {"SO_TIMESTAMPNS", SOL_SOCKET, SO_TIMESTAMPNS, 1, false},
    {"SO_BUSY_POLL", SOL_SOCKET, SO_BUSY_POLL, 0, false},
    {"SO_ZEROCOPY", SOL_SOCKET, SO_ZEROCOPY, 1, false},
    {"SO_PASSCRED", SOL_SOCKET, SO_PASSCRED, 1, false},
    {"SO_LOCK_FILTER", SOL_SOCKET, SO_LOCK_FILTER, 0, false},
    {"SO_DETACH_FILTER", SOL_SOCKET, SO_DETACH_FILTER, 0, false},
    {"SO_MAX_PACING_RATE", SOL_SOCKET, SO_MAX_PACING_RATE, 1000000000, false},
    {"TCP_NODELAY", IPPROTO_TCP, TCP_NODELAY, 1, false},
    {"TCP_CORK", IPPROTO_TCP, TCP_CORK, 0, false},
    {"TCP_MAXSEG", IPPROTO_TCP, TCP_MAXSEG, 1000, true},
    {"TCP_QUICKACK", IPPROTO_TCP, TCP_QUICKACK, 1, true},
    {"TCP_KEEPIDLE", IPPROTO_TCP, TCP_KEEPIDLE, 77, false},
    {"TCP_KEEPINTVL", IPPROTO_TCP, TCP_KEEPINTVL, 7, false},
    {"TCP_KEEPCNT", IPPROTO_TCP, TCP_KEEPCNT, 3, false},
    {"TCP_SYNCNT", IPPROTO_TCP, TCP_SYNCNT, 2, false},
    {"TCP_LINGER2", IPPROTO_TCP, TCP_LINGER2, 5, false},
    {"TCP_DEFER_ACCEPT", IPPROTO_TCP, TCP_DEFER_ACCEPT, 1, false},
    {"TCP_WINDOW_CLAMP", IPPROTO_TCP, TCP_WINDOW_CLAMP, 100000, true},
    {"TCP_USER_TIMEOUT", IPPROTO_TCP, TCP_USER_TIMEOUT, 30000, false},
    {"TCP_NOTSENT_LOWAT", IPPROTO_TCP, TCP_NOTSENT_LOWAT, 100000, false},
    {"TCP_FASTOPEN", IPPROTO_TCP, TCP_FASTOPEN, 5, false},
    {"TCP_THIN_DUPACK", IPPROTO_TCP, TCP_THIN_DUPACK, 0, false},
    {"TCP_THIN_LINEAR_TIMEOUTS", IPPROTO_TCP, TCP_THIN_LINEAR_TIMEOUTS, 1, false},
    {"TCP_TIMESTAMP", IPPROTO_TCP, TCP_TIMESTAMP, -1, true},
    {"TCP_SAVE_SYN", IPPROTO_TCP, TCP_SAVE_SYN, 0, false},
    {"TCP_REPAIR", IPPROTO_TCP, TCP_REPAIR, -1, false},
    {"TCP_INQ", IPPROTO_TCP, TCP_INQ, 1, false},
    {"TCP_TX_DELAY", IPPROTO_TCP, TCP_TX_DELAY, -1, true},
    {"TCP_INFO", IPPROTO_TCP, TCP_INFO, -1, true},
    {"IP_TOS", IPPROTO_IP, IP_TOS, 16, false},
    {"IP_TTL", IPPROTO_IP, IP_TTL, 33, false},
    {"IP_RECVERR", IPPROTO_IP, IP_RECVERR, 1, false},
    {"IP_MTU_DISCOVER", IPPROTO_IP, IP_MTU_DISCOVER, 1, false},
    {"IP_MTU", IPPROTO_IP, IP_MTU, -1, true},
    {"unknown_socket", SOL_SOCKET, 9999, 1, false},
    {"unknown_tcp", IPPROTO_TCP, 9999, 1, false},
    {"unknown_level", 9999, 1, 1, false},
};

static void get(const struct option *f)
{
    int value[64] = {0};
    socklen_t len = sizeof(value);
    long r;

    errno = CLEAN;
    r = show("get", getsockopt(p[0], f->level, f->number, value, &len), errno);
    if (r == 0 && !f->quiet)
        say("  %d, length %u", value[0], len);
}

EACH(option, struct option, options, COUNT(options))
{
    pair(p);
    get(f);
    if (f->set >= 0) {
        SHOW(setsockopt(p[0], f->level, f->number, &f->set, sizeof(f->set)));
        get(f);
        SHOW(setsockopt(p[0], f->level, f->number, &f->set, 1));
        SHOW(setsockopt(p[0], f->level, f->number, &f->set, 0));
    }
    works();
}

CASE(short_length)
{
    int value = -1;
    socklen_t len = 1;

    pair(p);
    SHOW(getsockopt(p[0], SOL_SOCKET, SO_KEEPALIVE, &value, &len));
    say("length %u", len);
    len = 0;
    SHOW(getsockopt(p[0], SOL_SOCKET, SO_ERROR, &value, &len));
    len = (socklen_t)-1;
    SHOW(getsockopt(p[0], SOL_SOCKET, SO_ERROR, &value, &len));
    len = 8;
    SHOW(getsockopt(p[0], IPPROTO_TCP, TCP_INFO, (char[8]){0}, &len));
    say("length %u", len);
}

CASE(linger)
{
    struct linger l = {1, 3};
    socklen_t len = sizeof(l);

    pair(p);
    SHOW(setsockopt(p[0], SOL_SOCKET, SO_LINGER, &l, sizeof(l)));
    memset(&l, 0, sizeof(l));
    SHOW(getsockopt(p[0], SOL_SOCKET, SO_LINGER, &l, &len));
    say("%d %d", l.l_onoff, l.l_linger);
    works();
    SHOW(close(p[0]));
    SHOW(recv(p[1], (char[1]){0}, 1, 0));
}

CASE(time_outs)
{
    struct timeval t = {5, 0}, bad = {0, 2000000};
    socklen_t len = sizeof(t);

    pair(p);
    SHOW(setsockopt(p[0], SOL_SOCKET, SO_RCVTIMEO, &t, sizeof(t)));
    SHOW(setsockopt(p[0], SOL_SOCKET, SO_SNDTIMEO, &t, sizeof(t)));
    SHOW(setsockopt(p[0], SOL_SOCKET, SO_RCVTIMEO, &bad, sizeof(bad)));
    SHOW(setsockopt(p[0], SOL_SOCKET, SO_RCVTIMEO, &t, 4));
    memset(&t, 0, sizeof(t));
    SHOW(getsockopt(p[0], SOL_SOCKET, SO_SNDTIMEO, &t, &len));
    say("%ld.%06ld, length %u", (long)t.tv_sec, (long)t.tv_usec, len);
    works();
}

CASE(low_water_mark)
{
    struct timeval t = {0, 100000};
    char buf[10] = "";
    int four = 4, one = 1;

    pair(p);
    SHOW(setsockopt(p[1], SOL_SOCKET, SO_RCVLOWAT, &four, sizeof(four)));
    SHOW(setsockopt(p[1], SOL_SOCKET, SO_RCVTIMEO, &t, sizeof(t)));
    deliver(p[0], p[1], "ab");
    SHOW(poll(&(struct pollfd){p[1], POLLIN, 0}, 1, 0));
    SHOW(recv(p[1], buf, 10, 0)); /* waits for four, in vain */
    deliver(p[0], p[1], "cdef");
    SHOW(poll(&(struct pollfd){p[1], POLLIN, 0}, 1, 1000));
    SHOW(recv(p[1], buf, 10, 0));
    SHOW(setsockopt(p[1], SOL_SOCKET, SO_RCVLOWAT, &one, sizeof(one)));
    works();
}

CASE(error_is_told_once)
{
    int e = -1;
    socklen_t len = sizeof(e);

    pair(p);
    reset(p[1]);
    until(p[0], POLLHUP);
    SHOW(getsockopt(p[0], SOL_SOCKET, SO_ERROR, &e, &len));
    say("%s", strerrorname_np(e));
    SHOW(getsockopt(p[0], SOL_SOCKET, SO_ERROR, &e, &len));
    say("%d", e);
    SHOW(recv(p[0], &e, 1, 0));
    say_events("poll", until(p[0], POLLHUP));
}

CASE(error_of_a_failed_connect)
{
    struct sockaddr_storage at;
    socklen_t len, elen = sizeof(int);
    int l = listener(&net4, &at, &len), e = -1;

    close(l);
    p[0] = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    SHOW(connect(p[0], (struct sockaddr *)&at, len));
    until(p[0], POLLERR);
    SHOW(getsockopt(p[0], SOL_SOCKET, SO_ERROR, &e, &elen));
    say("%s", strerrorname_np(e));
}

CASE(readable_bytes)
{
    int n = -1;

    pair(p);
    SHOW(ioctl(p[1], FIONREAD, &n));
    say("%d", n);
    deliver(p[0], p[1], "12345");
    SHOW(ioctl(p[1], FIONREAD, &n));
    say("%d", n);
    SHOW(read(p[1], (char[2]){0}, 2));
    SHOW(ioctl(p[1], SIOCINQ, &n));
    say("%d", n);
    SHOW(shutdown(p[0], SHUT_WR));
    until(p[1], POLLRDHUP);
    SHOW(ioctl(p[1], FIONREAD, &n));
    say("%d", n);
}

CASE(queued_bytes)
{
    int n = -1;

    pair(p);
    acked(p[0]);
    SHOW(ioctl(p[0], SIOCOUTQ, &n));
    say("%d", n);
    SHOW(ioctl(p[0], SIOCOUTQNSD, &n));
    say("%d", n);
    works();
}

CASE(queued_bytes_are_kept_until_read)
{
    size_t at = 0;
    int n = 0;

    pair(p);
    fill(p[0], &at);
    SHOW(ioctl(p[0], SIOCOUTQ, &n));
    say("some: %d", n > 0 && (size_t)n <= at);
    must(take(p[1], 0, at), "take");
    acked(p[0]);
}

CASE(nonblocking_by_ioctl)
{
    int on = 1, off = 0;

    pair(p);
    SHOW(ioctl(p[0], FIONBIO, &on));
    say("O_NONBLOCK %d", (fcntl(p[0], F_GETFL) & O_NONBLOCK) != 0);
    SHOW(read(p[0], (char[1]){0}, 1));
    SHOW(ioctl(p[0], FIONBIO, &off));
    say("O_NONBLOCK %d", (fcntl(p[0], F_GETFL) & O_NONBLOCK) != 0);
    works();
}

CASE(nonblocking_is_of_the_description)
{
    int d;

    pair(p);
    d = dup(p[0]);
    nonblock(d, true);
    SHOW(read(p[0], (char[1]){0}, 1));
    nonblock(p[0], false);
    SHOW(recv(d, (char[1]){0}, 1, MSG_DONTWAIT));
    say("O_NONBLOCK %d", (fcntl(d, F_GETFL) & O_NONBLOCK) != 0);
    works();
}

CASE(accept_does_not_inherit_nonblock)
{
    struct sockaddr_storage at;
    socklen_t len;
    int l = listener(&net4, &at, &len);

    nonblock(l, true);
    p[0] = socket(AF_INET, SOCK_STREAM, 0);
    SHOW(accept(l, NULL, NULL));
    SHOW(connect(p[0], (struct sockaddr *)&at, len));
    until(l, POLLIN);
    p[1] = accept(l, NULL, NULL);
    say("O_NONBLOCK %d, FD_CLOEXEC %d", (fcntl(p[1], F_GETFL) & O_NONBLOCK) != 0,
        fcntl(p[1], F_GETFD));
    board(p[0], p[1]);
    works();
}

CASE(accept4_flags)
{
    struct sockaddr_storage at;
    socklen_t len;
    int l = listener(&net4, &at, &len);

    p[0] = socket(AF_INET, SOCK_STREAM, 0);
    SHOW(connect(p[0], (struct sockaddr *)&at, len));
    SHOW(accept4(l, NULL, NULL, 0x1234));
    p[1] = accept4(l, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
    say("O_NONBLOCK %d, FD_CLOEXEC %d", (fcntl(p[1], F_GETFL) & O_NONBLOCK) != 0,
        fcntl(p[1], F_GETFD));
    nonblock(p[1], false);
    board(p[0], p[1]);
    nonblock(p[1], true);
    SHOW(read(p[1], (char[1]){0}, 1));
}

CASE(status_flags)
{
    pair(p);
    say("%#x", (unsigned)fcntl(p[0], F_GETFL));
    SHOW(fcntl(p[0], F_SETFL, O_NONBLOCK | O_APPEND));
    say("%#x", (unsigned)fcntl(p[0], F_GETFL));
    SHOW(fcntl(p[0], F_SETFL, 0));
    SHOW(fcntl(p[0], F_SETFD, FD_CLOEXEC));
    SHOW(fcntl(p[0], F_GETFD));
    SHOW(fcntl(p[0], 9999, 0));
    works();
}

CASE(asynchronous)
{
    catch_signal(SIGIO, SA_RESTART);
    pair(p);
    SHOW(fcntl(p[0], F_SETOWN, getpid()));
    SHOW(fcntl(p[0], F_SETFL, O_ASYNC));
    SHOW_AS("send", send(p[1], "x", 1, 0));
    arrived(p[0], 1);
    until_caught();
    say("SIGIO %d", caught > 0);
}

CASE(not_a_file)
{
    struct stat st;

    pair(p);
    SHOW(fstat(p[0], &st));
    say("socket %d, size %ld", S_ISSOCK(st.st_mode), (long)st.st_size);
    SHOW(lseek(p[0], 0, SEEK_CUR));
    SHOW(pread(p[0], (char[1]){0}, 1, 0));
    SHOW(pwrite(p[0], "x", 1, 0));
    SHOW(ftruncate(p[0], 0));
    SHOW(fsync(p[0]));
    SHOW(isatty(p[0]));
    SHOW(fchmod(p[0], 0600));
    SHOW(posix_fadvise(p[0], 0, 0, POSIX_FADV_NORMAL));
    works();
}

CASE(cork)
{
    static const struct option cork = {"TCP_CORK", IPPROTO_TCP, TCP_CORK, 0, false};
    int on = 1, off = 0;

    pair(p);
    SHOW(setsockopt(p[0], IPPROTO_TCP, TCP_CORK, (void *)8, sizeof(on)));
    acked(p[0]);
    SHOW(setsockopt(p[0], IPPROTO_TCP, TCP_CORK, &on, sizeof(on)));
    get(&cork);
    SHOW(setsockopt(p[0], IPPROTO_TCP, TCP_CORK, &on, 3));
    SHOW(setsockopt(p[0], IPPROTO_TCP, TCP_CORK, NULL, sizeof(on)));
    SHOW(send(p[0], "x", 1, 0));
    SHOW(setsockopt(p[0], IPPROTO_TCP, TCP_CORK, &off, sizeof(off)));
    get(&cork);
    arrived(p[1], 1);
    SHOW(read(p[1], (char[1]){0}, 1));
    works();
}

/* How much more there is, beside what a recvmsg takes. */
static void with_inq(int fd, size_t n, int flags, size_t room)
{
    union {
        struct cmsghdr head;
        char room[64];
    } c;
    char bytes[64];
    struct iovec v = {bytes, n};
    struct msghdr m = {
        .msg_iov = &v, .msg_iovlen = 1, .msg_control = room ? &c : NULL, .msg_controllen = room};

    memset(&c, 0, sizeof(c));
    SHOW(recvmsg(fd, &m, flags));
    say("room for %zu, used %zu, flags %x", room, (size_t)m.msg_controllen, (unsigned)m.msg_flags);
    if (m.msg_controllen >= CMSG_LEN(0) && m.msg_controllen < sizeof(c))
        say("level %d, type %d, length %zu", c.head.cmsg_level, c.head.cmsg_type,
            (size_t)c.head.cmsg_len);
    if (m.msg_controllen >= CMSG_LEN(sizeof(int)) && c.head.cmsg_len >= CMSG_LEN(sizeof(int)))
        say("says %d", *(int *)CMSG_DATA(&c.head));
}

CASE(inq)
{
    int on = 1, off = 0;

    pair(p);
    SHOW(setsockopt(p[1], IPPROTO_TCP, TCP_INQ, &on, sizeof(on)));
    deliver(p[0], p[1], "0123456789012345678901234567890123456789");
    with_inq(p[1], 10, 0, 64);
    with_inq(p[1], 10, MSG_PEEK, 64);
    with_inq(p[1], 0, 0, 64);
    with_inq(p[1], 5, 0, 0);
    with_inq(p[1], 5, 0, 8);
    with_inq(p[1], 5, 0, 16);
    with_inq(p[1], 5, 0, 18);
    with_inq(p[1], 5, 0, 20);
    with_inq(p[1], 50, 0, 64);
    with_inq(p[1], 50, MSG_DONTWAIT, 64);
    deliver(p[0], p[1], "01234");
    SHOW(setsockopt(p[1], IPPROTO_TCP, TCP_INQ, &off, sizeof(off)));
    with_inq(p[1], 3, 0, 64);
    SHOW(setsockopt(p[1], IPPROTO_TCP, TCP_INQ, &on, sizeof(on)));
    shutdown(p[0], SHUT_WR);
    until(p[1], POLLRDHUP);
    with_inq(p[1], 1, 0, 64);
    with_inq(p[1], 1, 0, 64);
    with_inq(p[1], 1, 0, 64);
}

/* Asked of the listener it is asked of each connection. */
CASE(inherited_inq)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int l = socket(AF_INET, SOCK_STREAM, 0), on = 1;
    socklen_t len = sizeof(at);

    must(bind(l, (struct sockaddr *)&at, len) == 0 && listen(l, 1) == 0, "listen");
    must(getsockname(l, (struct sockaddr *)&at, &len) == 0, "getsockname");
    SHOW(setsockopt(l, IPPROTO_TCP, TCP_INQ, &on, sizeof(on)));
    p[0] = socket(AF_INET, SOCK_STREAM, 0);
    must(connect(p[0], (struct sockaddr *)&at, sizeof(at)) == 0, "connect");
    p[1] = accept(l, NULL, NULL);
    board(p[0], p[1]);
    deliver(p[0], p[1], "0123456789");
    with_inq(p[1], 4, 0, 64);
    with_inq(p[1], 6, 0, 64);
}

CASE(disconnect)
{
    struct sockaddr none = {.sa_family = AF_UNSPEC};

    pair(p);
    SHOW(connect(p[0], &none, sizeof(none)));
    SHOW(send(p[0], "x", 1, MSG_NOSIGNAL));
    until(p[1], POLLHUP);
    SHOW(read(p[1], (char[1]){0}, 1));
}

CASE(connect_again)
{
    struct sockaddr_storage at;
    socklen_t len = sizeof(at);

    pair(p);
    SHOW(getpeername(p[0], (struct sockaddr *)&at, &len));
    SHOW(connect(p[0], (struct sockaddr *)&at, len));
    SHOW(listen(p[0], 5));
    SHOW(bind(p[0], (struct sockaddr *)&at, len));
    SHOW(accept(p[0], NULL, NULL));
    works();
}
