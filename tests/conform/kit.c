/*
 * kit.c - connections, and waiting for what happens at their other end. See kit.h.
 */
#include "tests/conform/kit.h"

#include "ipoib_fallback/pub.h"

#include <linux/sockios.h>
#include <stdarg.h>
#include <stddef.h>
#include <sys/stat.h>
#include <time.h>

/* ---- printing */

void give_up(const char *what)
{
    printf("%s: %s\n", what, strerrorname_np(errno));
    fflush(stdout);
    exit(3);
}

void say(const char *format, ...)
{
    va_list args;

    va_start(args, format);
    vprintf(format, args);
    va_end(args);
    putchar('\n');
}

long show(const char *what, long result, int error)
{
    if (result == -1)
        printf("%s = -1 %s\n", what, strerrorname_np(error));
    else
        printf("%s = %ld%s\n", what, result, error == CLEAN ? "" : " (errno moved)");
    errno = error;
    return result;
}

void say_events(const char *what, int events)
{
    static const struct {
        int bit;
        const char *name;
    } names[] = {
        {POLLIN, "IN"},         {POLLPRI, "PRI"},       {POLLOUT, "OUT"},
        {POLLRDHUP, "RDHUP"},   {POLLERR, "ERR"},       {POLLHUP, "HUP"},
        {POLLNVAL, "NVAL"},     {POLLRDNORM, "RDNORM"}, {POLLRDBAND, "RDBAND"},
        {POLLWRNORM, "WRNORM"}, {POLLWRBAND, "WRBAND"},
    };

    printf("%s:", what);
    for (size_t i = 0; i < COUNT(names); i++)
        if (events & names[i].bit)
            printf(" %s", names[i].name);
    putchar('\n');
}

void say_error(int fd)
{
    int e = -1;
    socklen_t len = sizeof(e);

    must(getsockopt(fd, SOL_SOCKET, SO_ERROR, &e, &len) == 0, "SO_ERROR");
    say("SO_ERROR %s", e ? strerrorname_np(e) : "0");
}

void say_bytes(const char *what, const void *bytes, ssize_t n)
{
    printf("%s [%.*s]\n", what, n > 0 ? (int)n : 0, (const char *)bytes);
}

void say_rest(int fd)
{
    char buf[100] = "";
    ssize_t n;

    do {
        errno = CLEAN;
        n = recv(fd, buf, sizeof(buf), MSG_WAITALL);
        show("recv", n, errno);
        if (n > 0)
            say_bytes(" ", buf, n);
    } while (n > 0);
}

void sleep_ms(int ms)
{
    struct timespec t = {ms / 1000, ms % 1000 * 1000000l};

    while (nanosleep(&t, &t) != 0 && errno == EINTR)
        ;
}

void timed_out(const struct timeval *tv)
{
    int s[2];
    char byte;

    must(socketpair(AF_UNIX, SOCK_STREAM, 0, s) == 0 &&
             setsockopt(s[0], SOL_SOCKET, SO_RCVTIMEO, tv, sizeof(*tv)) == 0,
         "a time-out");
    for (int i = 0; i < 2; i++)
        must(recv(s[0], &byte, 1, 0) == -1 && errno == EAGAIN, "it is over");
    close(s[0]);
    close(s[1]);
}

/* ---- rails */

/* The rest of the slot that lies there. */
static bool rail_of(int file, off_t slot, struct fb_pub_rail *rail)
{
    off_t i = (slot - (off_t)offsetof(struct fb_pub_file, slot)) / (off_t)sizeof(struct fb_pub);

    return pread(file, rail, sizeof(*rail), (off_t)FB_PUB_RAILS + i * (off_t)sizeof(*rail)) ==
           sizeof(*rail);
}

bool on_rail(int fd, bool sends, bool receives, bool lasting)
{
    struct fb_pub_file head;
    struct fb_pub slot;
    struct fb_pub_rail rail;
    char path[64];
    bool found = false;
    off_t at = offsetof(struct fb_pub_file, slot), end = at;
    int file;

    snprintf(path, sizeof(path), FB_PUB_DIR "/%d", geteuid(), (int)getpid());
    file = open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0)
        return false;
    if (pread(file, &head, sizeof(head), 0) == sizeof(head))
        end += (off_t)head.nslots * (off_t)sizeof(slot);
    for (; !found && at < end; at += (off_t)sizeof(slot))
        if (pread(file, &slot, sizeof(slot), at) == sizeof(slot) && slot.gen % 2 && slot.fd == fd)
            found = ((!sends || slot.path_tx != FB_PATH_TCP) &&
                     (!receives || slot.path_rx != FB_PATH_TCP)) ||
                    (!lasting && rail_of(file, at, &rail) && (!sends || rail.rail_tx) &&
                     (!receives || rail.rail_rx));
    close(file);
    return found;
}

const char *own_address(void)
{
    const char *text = getenv("CONFORM_ADDRESS");

    return text ? text : OWN;
}

static const char *own_address6(void)
{
    const char *text = getenv("CONFORM_ADDRESS6");

    return text ? text : OWN6;
}

static bool is_own(int get(int, struct sockaddr *, socklen_t *), int fd)
{
    struct sockaddr_in6 a = {0};
    const struct sockaddr_in *v4 = (const struct sockaddr_in *)&a;
    socklen_t len = sizeof(a);
    struct in_addr own;
    struct in6_addr own6;

    must(get(fd, (struct sockaddr *)&a, &len) == 0, "address");
    must(inet_pton(AF_INET, own_address(), &own) == 1, own_address());
    must(inet_pton(AF_INET6, own_address6(), &own6) == 1, own_address6());
    if (a.sin6_family == AF_INET6 && memcmp(&a.sin6_addr, &own6, sizeof(own6)) == 0)
        return true;
    return memcmp(a.sin6_family == AF_INET ? (const void *)&v4->sin_addr : &a.sin6_addr.s6_addr[12],
                  &own, sizeof(own)) == 0;
}

/* Shall this run wait until this stream is on a rail? To an RDMA device's own address only
 * its own leads. */
static bool to_board(int fd)
{
    const char *how = getenv("CONFORM_BOARD");

    return how && strcmp(how, "wait") == 0 &&
           (!getenv("CONFORM_ADDRESS") || (is_own(getsockname, fd) && is_own(getpeername, fd)));
}

/* As much as a stream needs before it may board. */
#define ROUNDS 3

static void exchange(int from, int to)
{
    char bytes[64] = "some bytes that both ends of the stream have seen";

    must(send(from, bytes, sizeof(bytes), MSG_NOSIGNAL) == sizeof(bytes), "exchange: send");
    must(recv(to, bytes, sizeof(bytes), MSG_WAITALL) == sizeof(bytes), "exchange: recv");
}

void board(int a, int b)
{
    bool lasting = !getenv("RAILSOCK_TEST_SWITCH");

    for (int i = 0; i < ROUNDS; i++) {
        exchange(a, b);
        exchange(b, a);
    }
    if (!to_board(a))
        return;
    for (int i = 0; !on_rail(a, true, true, lasting) || !on_rail(b, true, true, lasting); i++) {
        errno = ETIMEDOUT;
        must(i < PATIENCE, "boarding");
        exchange(a, b);
        exchange(b, a);
        sleep_ms(1);
    }
}

/* Two processes each see their own half of the rail, so they tell each other: the first byte of a
 * message says whether the sender's end is where it should be. They go on until both are. */
void board_one(int fd, bool first)
{
    bool lasting = !getenv("RAILSOCK_TEST_SWITCH"), waits = to_board(fd);
    char bytes[64];
    bool done = false;

    for (int i = 0; i < ROUNDS || !done; i++) {
        char mine = !waits || on_rail(fd, true, true, lasting) ? '1' : '0';

        errno = ETIMEDOUT;
        must(i < PATIENCE, "boarding");
        memset(bytes, mine, sizeof(bytes));
        if (first)
            must(send(fd, bytes, sizeof(bytes), MSG_NOSIGNAL) == sizeof(bytes), "board: send");
        must(recv(fd, bytes, sizeof(bytes), MSG_WAITALL) == sizeof(bytes), "board: recv");
        done = mine == '1' && bytes[0] == '1';
        if (first)
            continue;
        memset(bytes, mine, sizeof(bytes));
        must(send(fd, bytes, sizeof(bytes), MSG_NOSIGNAL) == sizeof(bytes), "board: send");
        sleep_ms(1);
    }
}

/* One direction only: what the other end sends is on TCP. */
void board_half(int fd, bool sends)
{
    bool lasting = !getenv("RAILSOCK_TEST_SWITCH"), waits = to_board(fd);
    char bytes[64] = "";

    /* Where rails fail at random, one that failed before its first byte keeps the next
     * away for long. */

    for (int i = 0; bytes[0] != '1'; i++) {
        errno = ETIMEDOUT;
        must(i < PATIENCE, "boarding");
        /* The last of them has gone by rail. */
        memset(bytes,
               i < ROUNDS ||
                       (waits && (lasting || i < 2000) && !on_rail(fd, sends, !sends, lasting))
                   ? '0'
                   : '1',
               sizeof(bytes));
        if (sends) {
            must(send(fd, bytes, sizeof(bytes), MSG_NOSIGNAL) == sizeof(bytes), "board: send");
            sleep_ms(1);
        } else {
            must(recv(fd, bytes, sizeof(bytes), MSG_WAITALL) == sizeof(bytes), "board: recv");
        }
    }
}

/* ---- connections */

const struct net net4 = {"ipv4", AF_INET, OWN, OWN};
const struct net net6 = {"ipv6", AF_INET6, OWN6, OWN6};

/* In text, OWN and OWN6 become this run's. */
static socklen_t address(struct sockaddr_storage *a, int family, const char *text, in_port_t port)
{
    struct sockaddr_in *v4 = (struct sockaddr_in *)a;
    struct sockaddr_in6 *v6 = (struct sockaddr_in6 *)a;
    const char *own;
    char there[INET6_ADDRSTRLEN];

    if (strcmp(text, OWN6) == 0)
        text = own_address6();
    own = strstr(text, OWN);
    snprintf(there, sizeof(there), "%.*s%s", own ? (int)(own - text) : 0, text,
             own ? own_address() : text);
    memset(a, 0, sizeof(*a));
    a->ss_family = (sa_family_t)family;
    if (family == AF_INET) {
        v4->sin_port = port;
        must(inet_pton(family, there, &v4->sin_addr) == 1, text);
        return sizeof(*v4);
    }
    v6->sin6_port = port;
    must(inet_pton(family, there, &v6->sin6_addr) == 1, text);
    return sizeof(*v6);
}

static in_port_t port_of(const struct sockaddr_storage *a)
{
    return a->ss_family == AF_INET ? ((const struct sockaddr_in *)a)->sin_port
                                   : ((const struct sockaddr_in6 *)a)->sin6_port;
}

/* *at becomes where to connect to. */
int listener(const struct net *net, struct sockaddr_storage *at, socklen_t *len)
{
    int fd;

    *len = address(at, strchr(net->bound, ':') ? AF_INET6 : AF_INET, net->bound, 0);
    fd = socket(at->ss_family, SOCK_STREAM, 0);
    must(fd >= 0 && bind(fd, (struct sockaddr *)at, *len) == 0 && listen(fd, 64) == 0, "listen");
    must(getsockname(fd, (struct sockaddr *)at, len) == 0, "getsockname");
    *len = address(at, net->family, net->to, port_of(at));
    return fd;
}

/* The listening socket is the caller's to close. */
static int connected(const struct net *net, int p[2])
{
    struct sockaddr_storage at;
    socklen_t len;
    int l = listener(net, &at, &len);

    p[0] = socket(net->family, SOCK_STREAM, 0);
    must(p[0] >= 0 && connect(p[0], (struct sockaddr *)&at, len) == 0, "connect");
    p[1] = accept(l, NULL, NULL);
    must(p[1] >= 0, "accept");
    return l;
}

void pair_raw(const struct net *net, int p[2])
{
    close(connected(net, p));
}

void pair_over(const struct net *net, int p[2])
{
    int l = connected(net, p);

    board(p[0], p[1]);
    close(l);
}

void pair(int p[2])
{
    pair_over(&net4, p);
}

void nonblock(int fd, bool on)
{
    int flags = fcntl(fd, F_GETFL);

    must(flags >= 0 && fcntl(fd, F_SETFL, on ? flags | O_NONBLOCK : flags & ~O_NONBLOCK) == 0,
         "O_NONBLOCK");
}

void reset(int fd)
{
    struct linger l = {1, 0};

    must(setsockopt(fd, SOL_SOCKET, SO_LINGER, &l, sizeof(l)) == 0 && close(fd) == 0, "reset");
}

/* ---- waiting */

int until(int fd, int events)
{
    struct pollfd p = {fd, (short)(events & (POLLIN | POLLOUT | POLLPRI | POLLRDHUP)), 0};

    for (int i = 0; i < PATIENCE / 5; i++) {
        if (poll(&p, 1, 5) > 0 && (p.revents & events) == events)
            return p.revents;
        if (p.revents)
            sleep_ms(5); /* others than these are there, which would not let poll sleep */
    }
    say_events("waited in vain; poll says", p.revents);
    return p.revents;
}

void arrived(int fd, size_t n)
{
    int have = 0;

    for (int i = 0; i < PATIENCE / 2; i++) {
        must(ioctl(fd, FIONREAD, &have) == 0, "FIONREAD");
        if (have >= 0 && (size_t)have >= n)
            return;
        sleep_ms(1);
    }
    say("waited in vain for %zu bytes; there are %d", n, have);
}

void deliver(int from, int to, const char *text)
{
    int have = 0;

    must(ioctl(to, FIONREAD, &have) == 0, "FIONREAD");
    must(send(from, text, strlen(text), MSG_NOSIGNAL) == (ssize_t)strlen(text), "deliver");
    arrived(to, (size_t)have + strlen(text));
}

void acked(int fd)
{
    int left = 0;

    for (int i = 0; i < PATIENCE; i++) {
        must(ioctl(fd, SIOCOUTQ, &left) == 0, "SIOCOUTQ");
        if (left == 0)
            return;
        sleep_ms(1);
    }
    say("waited in vain for the queue to be empty");
}

void taken(int from, int to)
{
    int left = 1;

    acked(from);
    for (int i = 0; i < PATIENCE; i++) {
        must(ioctl(to, FIONREAD, &left) == 0, "FIONREAD");
        if (left == 0)
            return;
        sleep_ms(1);
    }
    say("waited in vain for a reader; %d bytes are left", left);
}
