/*
 * ring_floor.c - the least that a server of many connections and its client can cost over memory
 * that both share: a library to preload into nginx and wrk, redis and its benchmark, or postgres
 * and pgbench. The bytes of a connection go into a ring and its cursor is stored; a wait for events
 * looks at the cursors. Who finds nothing looks on for RING_FLOOR_LOOKS times and then sleeps on a
 * futex, which a writer wakes.
 *
 * No more than that: nothing is proved, no ring is ever full (an answer is shorter, and the next
 * request waits for it), no end of a stream, no signals but what interrupts a sleep, no way back to
 * TCP, and only the calls that these programs make for their connections, all of which must be
 * non-blocking when they connect. tools/measure has the programs run on it beside the rail.
 *
 * RING_FLOOR is the name of the memory, as shm_open(3) wants it; whoever accepts first removes it.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <linux/futex.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <sys/epoll.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>

#include "floor.h"

enum { CONNECTIONS = 64, READERS = 64, NUMBERS = 1024, LINE = 64, SLICE_MS = 50, ASKED = 1024 };

/* One way of all connections. The cursors lie side by side: who waits for many looks
 * at few lines. */
struct ways {
    _Atomic uint64_t tail[CONNECTIONS] __attribute__((aligned(LINE)));
    _Atomic uint32_t reader[CONNECTIONS]
        __attribute__((aligned(LINE))); /* its number, once it has waited */
    char bytes[CONNECTIONS][FLOOR_RING] __attribute__((aligned(LINE)));
};

static struct memory {
    _Atomic uint32_t connections, readers;
    _Atomic uint8_t of_port[65536]; /* the connection + 1 whose connecting end has that port */
    struct {
        _Atomic uint32_t sleeps;
    } __attribute__((aligned(LINE))) bells[READERS];
    struct ways ways[2]; /* to who has connected, to who has accepted */
} * memory;

static struct end {
    int fd, epfd;
    unsigned slot;
    struct ways *in, *out;
    uint64_t received, sent;
    uint32_t reader;
    struct epoll_event wanted;
} * ends[NUMBERS], *in_order[CONNECTIONS];
static unsigned used;
static unsigned long looks_before_sleep;
static char *name;
static _Thread_local uint32_t me; /* the calling thread's bell */

static void in_the_child(void)
{
    me = 0;
}

/* nginx's workers have no environment any more. */
__attribute__((constructor)) static void begin(void)
{
    const char *said = getenv("RING_FLOOR"), *looks = getenv("RING_FLOOR_LOOKS");

    name = said ? strdup(said) : NULL;
    looks_before_sleep = looks ? strtoul(looks, NULL, 10) : 1 << 14;
    pthread_atfork(NULL, NULL, in_the_child);
}

static bool mapped(bool create)
{
    if (!memory && name)
        memory = floor_memory(name, sizeof *memory, create);
    return memory;
}

static struct end *of(int fd)
{
    return fd >= 0 && fd < NUMBERS ? ends[fd] : NULL;
}

static void add(int fd, unsigned slot, int way_in)
{
    struct end *e = calloc(1, sizeof *e);

    if (!e || fd >= NUMBERS || used == CONNECTIONS)
        abort();
    *e = (struct end){.fd = fd,
                      .epfd = -1,
                      .slot = slot,
                      .in = &memory->ways[way_in],
                      .out = &memory->ways[!way_in]};
    ends[fd] = in_order[used++] = e;
}

/* Before the other end can accept, so that it finds what connection it is. Comes back
 * when it is there. */
EXPORT int connect(int fd, const struct sockaddr *addr, socklen_t len)
{
    struct sockaddr_in at = {.sin_family = AF_INET};
    socklen_t at_len = sizeof at;
    struct pollfd there = {.fd = fd, .events = POLLOUT};
    unsigned slot;
    int got;

    if (of(fd)) /* hiredis asks so whether it is connected */
        return 0;
    if (!name || addr->sa_family != AF_INET || !(fcntl(fd, F_GETFL) & O_NONBLOCK))
        return NEXT(connect)(fd, addr, len);
    if (!mapped(true) || bind(fd, (struct sockaddr *)&at, at_len) < 0 ||
        getsockname(fd, (struct sockaddr *)&at, &at_len) < 0)
        abort();
    slot = atomic_fetch_add(&memory->connections, 1);
    if (slot >= CONNECTIONS)
        abort();
    atomic_store(&memory->of_port[at.sin_port], (uint8_t)(slot + 1));
    got = NEXT(connect)(fd, addr, len);
    if (got < 0 && (errno != EINPROGRESS || NEXT(poll)(&there, 1, 10000) != 1))
        return got;
    add(fd, slot, 0);
    if (got < 0)
        errno = EINPROGRESS;
    return got;
}

static int accepted(int fd)
{
    struct sockaddr_in peer = {0};
    socklen_t len = sizeof peer;
    unsigned slot;

    if (fd < 0 || !name || getpeername(fd, (struct sockaddr *)&peer, &len) < 0 ||
        peer.sin_family != AF_INET || !mapped(false))
        return fd;
    slot = atomic_exchange(&memory->of_port[peer.sin_port], 0);
    if (slot) {
        shm_unlink(name);
        add(fd, slot - 1, 1);
    }
    return fd;
}

EXPORT int accept(int fd, struct sockaddr *addr, socklen_t *addr_len)
{
    return accepted(NEXT(accept)(fd, addr, addr_len));
}

EXPORT int accept4(int fd, struct sockaddr *addr, socklen_t *addr_len, int flags)
{
    return accepted(NEXT(accept4)(fd, addr, addr_len, flags));
}

EXPORT int close(int fd)
{
    struct end *e = of(fd);

    for (unsigned i = 0; e && i < used; i++)
        if (in_order[i] == e) {
            in_order[i] = in_order[--used];
            ends[fd] = NULL;
            free(e);
            break;
        }
    return NEXT(close)(fd);
}

/* ---- bytes */

static void put(struct end *e, const void *p, size_t n)
{
    if (n > FLOOR_RING / 2)
        abort();
    floor_put(e->out->bytes[e->slot], e->sent, p, n);
    e->sent += n;
}

/* What has been put is the reader's. */
static void give(struct end *e)
{
    _Atomic uint32_t *sleeps;

    atomic_store_explicit(&e->out->tail[e->slot], e->sent, memory_order_release);
    /* Either this sees that the reader is about to sleep, or its last look sees the cursor: B. */
    atomic_thread_fence(memory_order_seq_cst); /* A */
    sleeps =
        &memory->bells[atomic_load_explicit(&e->out->reader[e->slot], memory_order_relaxed)].sleeps;
    if (atomic_load_explicit(sleeps, memory_order_relaxed) && atomic_exchange(sleeps, 0))
        syscall(SYS_futex, sleeps, FUTEX_WAKE, 1, NULL, NULL, 0);
}

static bool any(const struct end *e)
{
    return atomic_load_explicit(&e->in->tail[e->slot], memory_order_acquire) != e->received;
}

static ssize_t take(struct end *e, void *p, size_t n)
{
    uint64_t there;

    while (
        !(there = atomic_load_explicit(&e->in->tail[e->slot], memory_order_acquire) - e->received))
        if (fcntl(e->fd, F_GETFL) & O_NONBLOCK) {
            errno = EAGAIN;
            return -1;
        }
    if (n > there)
        n = there;
    floor_take(p, e->in->bytes[e->slot], e->received, n);
    e->received += n;
    return (ssize_t)n;
}

static ssize_t send_all(struct end *e, const void *p, size_t n)
{
    put(e, p, n);
    give(e);
    return (ssize_t)n;
}

EXPORT ssize_t recv(int fd, void *buf, size_t n, int flags)
{
    struct end *e = of(fd);

    return e ? take(e, buf, n) : NEXT(recv)(fd, buf, n, flags);
}

EXPORT ssize_t read(int fd, void *buf, size_t nbytes)
{
    struct end *e = of(fd);

    return e ? take(e, buf, nbytes) : NEXT(read)(fd, buf, nbytes);
}

EXPORT ssize_t send(int fd, const void *buf, size_t n, int flags)
{
    struct end *e = of(fd);

    return e ? send_all(e, buf, n) : NEXT(send)(fd, buf, n, flags);
}

EXPORT ssize_t write(int fd, const void *buf, size_t n)
{
    struct end *e = of(fd);

    return e ? send_all(e, buf, n) : NEXT(write)(fd, buf, n);
}

/* nginx's header, corked: its file comes behind it, and gives both. */
EXPORT ssize_t writev(int fd, const struct iovec *iovec, int count)
{
    struct end *e = of(fd);
    size_t sum = 0;

    if (!e)
        return NEXT(writev)(fd, iovec, count);
    for (int i = 0; i < count; i++) {
        put(e, iovec[i].iov_base, iovec[i].iov_len);
        sum += iovec[i].iov_len;
    }
    return (ssize_t)sum;
}

EXPORT ssize_t sendfile(int out_fd, int in_fd, off_t *offset, size_t count)
{
    struct end *e = of(out_fd);
    size_t at, first;
    ssize_t got;

    if (!e || !offset)
        return NEXT(sendfile)(out_fd, in_fd, offset, count);
    if (count > FLOOR_RING / 2)
        abort();
    at = e->sent % FLOOR_RING;
    first = count < FLOOR_RING - at ? count : FLOOR_RING - at;
    got = preadv(in_fd,
                 (struct iovec[]){{e->out->bytes[e->slot] + at, first},
                                  {e->out->bytes[e->slot], count - first}},
                 count > first ? 2 : 1, *offset);
    if (got <= 0)
        return got;
    *offset += got;
    e->sent += (size_t)got;
    give(e);
    return got;
}
EXPORT __typeof__(sendfile) sendfile64 __attribute__((alias("sendfile")));

/* TCP_CORK and TCP_NODELAY */
EXPORT int setsockopt(int fd, int level, int optname, const void *optval, socklen_t optlen)
{
    return of(fd) ? 0 : NEXT(setsockopt)(fd, level, optname, optval, optlen);
}

/* ---- events */

static void reads(struct end *e)
{
    if (e->reader == me)
        return;
    e->reader = me;
    atomic_store_explicit(&e->in->reader[e->slot], me, memory_order_relaxed);
}

/* Until a look finds something, a writer wakes, a signal is handled (-1), or a slice of
 * time is over (0). */
static int sleep_until(int (*look)(void *), void *p)
{
    const struct timespec slice = {.tv_nsec = SLICE_MS * 1000000L};
    _Atomic uint32_t *sleeps;
    int n;

    for (unsigned long i = 0; i < looks_before_sleep; i++) {
#if defined(__x86_64__)
        __builtin_ia32_pause();
#endif
        n = look(p);
        if (n)
            return n;
    }
    sleeps = &memory->bells[me].sleeps;
    atomic_store_explicit(sleeps, 1, memory_order_relaxed);
    atomic_thread_fence(memory_order_seq_cst); /* B */
    n = look(p);
    if (!n && syscall(SYS_futex, sleeps, FUTEX_WAIT, 1, &slice, NULL, 0) < 0 && errno == EINTR)
        n = -1;
    atomic_store_explicit(sleeps, 0, memory_order_relaxed);
    return n ? n : look(p);
}

/* The bell of 0 is nobody's. */
static void have_a_bell(void)
{
    if (!me)
        me = atomic_fetch_add(&memory->readers, 1) + 1;
    if (me >= READERS)
        abort();
}

EXPORT int epoll_ctl(int epfd, int op, int fd, struct epoll_event *event)
{
    struct end *e = of(fd);

    if (!e)
        return NEXT(epoll_ctl)(epfd, op, fd, event);
    e->epfd = op == EPOLL_CTL_DEL ? -1 : epfd;
    if (event)
        e->wanted = *event;
    return 0;
}

struct wait {
    int epfd, most;
    struct epoll_event *events;
};

static int look_at_all(void *p)
{
    const struct wait *w = p;
    int n = 0;

    for (unsigned i = 0; i < used && n < w->most; i++) {
        const struct end *e = in_order[i];
        uint32_t found = 0;

        if (e->epfd != w->epfd)
            continue;
        if ((e->wanted.events & EPOLLIN) && any(e))
            found = EPOLLIN;
        if ((e->wanted.events & (EPOLLOUT | EPOLLET)) == EPOLLOUT)
            found |= EPOLLOUT;
        if (found)
            w->events[n++] = (struct epoll_event){.events = found, .data = e->wanted.data};
    }
    return n;
}

EXPORT int epoll_wait(int epfd, struct epoll_event *events, int maxevents, int timeout)
{
    static unsigned rounds;
    struct wait w = {.epfd = epfd, .most = maxevents, .events = events};
    bool mine = false;

    for (unsigned i = 0; i < used; i++)
        if (in_order[i]->epfd == epfd) {
            if (!mine)
                have_a_bell();
            reads(in_order[i]);
            mine = true;
        }
    if (!mine)
        return NEXT(epoll_wait)(epfd, events, maxevents, timeout);
    for (int left = timeout;; left -= SLICE_MS) {
        int n = 0;

        if (++rounds % ASKED) {
            n = look_at_all(&w);
            if (!n)
                n = sleep_until(look_at_all, &w);
        }
        if (!n) /* the kernel's own, now and then and after each slice */
            n = NEXT(epoll_wait)(epfd, events, maxevents, 0);
        if (n || (timeout >= 0 && left <= SLICE_MS))
            return n;
    }
}

struct polled {
    struct pollfd *fds;
    nfds_t n;
};

static int look_at_polled(void *p)
{
    const struct polled *w = p;
    int n = 0;

    for (nfds_t i = 0; i < w->n; i++) {
        const struct end *e = of(w->fds[i].fd);

        w->fds[i].revents = 0;
        if (!e)
            continue;
        if ((w->fds[i].events & POLLIN) && any(e))
            w->fds[i].revents = POLLIN;
        w->fds[i].revents |= w->fds[i].events & POLLOUT;
        n += w->fds[i].revents != 0;
    }
    return n;
}

EXPORT int poll(struct pollfd *fds, nfds_t nfds, int timeout)
{
    struct polled w = {fds, nfds};
    bool mine = false;
    int n;

    for (nfds_t i = 0; i < nfds; i++)
        mine |= of(fds[i].fd) != NULL;
    if (!mine)
        return NEXT(poll)(fds, nfds, timeout);
    have_a_bell();
    for (nfds_t i = 0; i < nfds; i++)
        if (of(fds[i].fd))
            reads(ends[fds[i].fd]);
    n = look_at_polled(&w);
    for (int left = timeout; !n && timeout; left -= SLICE_MS) {
        n = sleep_until(look_at_polled, &w);
        if (timeout > 0 && left <= SLICE_MS)
            break;
    }
    return n;
}

EXPORT int ppoll(struct pollfd *fds, nfds_t nfds, const struct timespec *timeout,
                 const sigset_t *ss)
{
    (void)ss;
    return poll(fds, nfds,
                timeout ? (int)(timeout->tv_sec * 1000 + timeout->tv_nsec / 1000000) : -1);
}
