/*
 * sim_tcp.c - the simulated TCP under both ends: bounded buffers, partial sends, FIN,
 * RST, and Linux's own order of data and errors (sk_err is told once, queued bytes come first,
 * a reset peer's further writes are EPIPE).
 */
#include "tests/sim/sim.h"

#include <string.h>

void sim_tcp_new(void)
{
    for (int d = 0; d < 2; d++) {
        sim.tcp[d].sndbuf = 40 + rnd(4) * 30 + rnd(500);
        sim.tcp[d].rcvbuf = 40 + rnd(4) * 30 + rnd(500);
        sim.end[d].sock.refs = 1;
    }
}

static int end_of(int fd)
{
    return fd < 0 ? 0 : fd % SIM_FD; /* the callers look at -1 themselves */
}

static size_t total(const struct iovec *v, int cnt)
{
    size_t n = 0;

    for (int i = 0; i < cnt; i++)
        n += v[i].iov_len;
    return n;
}

/* Room came: an edge only for whoever met a full buffer, as SOCK_NOSPACE does. */
static void room(int e)
{
    if (sim.tcp[e].nospace && (sim_tcp_poll(SIM_FD + e, POLLOUT) & POLLOUT)) {
        sim.tcp[e].nospace = false;
        sim_edge(e);
    }
}

ssize_t sim_tcp_recv(int fd, const struct iovec *v, int cnt, uint64_t limit, int flags)
{
    int e = end_of(fd);
    struct sim_sock *s = &sim.end[e].sock;
    struct sim_tcp *t = &sim.tcp[!e];
    uint64_t have = t->moved - t->read, at = t->read;
    size_t want = total(v, cnt), done = 0;

    if (limit < want)
        want = (size_t)limit;
    if (want == 0)
        return 0;
    if (have == 0) {
        int err = t->fin_moved ? 0 : s->err; /* SOCK_DONE comes before sk_err */

        if (err) {
            s->err = 0;
            sim_trace("end %d: recv takes the error", e);
            return -err;
        }
        return s->gone || t->fin_moved || s->rdshut ? 0 : -EAGAIN;
    }
    if (want > have)
        want = (size_t)have;
    for (int i = 0; i < cnt; i++)
        for (size_t j = 0; j < v[i].iov_len && done < want; j++)
            ((uint8_t *)v[i].iov_base)[j] = t->byte[(at + done++) % sizeof(t->byte)];
    if (!(flags & MSG_PEEK))
        t->read += want;
    return (ssize_t)want;
}

ssize_t sim_tcp_send(int fd, const struct iovec *v, int cnt, int flags)
{
    int e = end_of(fd);
    struct sim_sock *s = &sim.end[e].sock;
    struct sim_tcp *t = &sim.tcp[e];
    size_t want = total(v, cnt), space = t->sndbuf - (size_t)(t->sent - t->moved), done = 0;

    (void)flags;
    if (s->err) {
        int err = s->err;

        s->err = 0;
        sim_trace("end %d: send takes the error", e);
        return -err;
    }
    if (s->gone || t->fin)
        return -EPIPE;
    if (want == 0)
        return 0;
    if (space == 0) {
        t->nospace = true;
        return -EAGAIN;
    }
    if (chance(sim.refuse)) { /* no memory at this moment */
        sim_edge(e);
        return -EAGAIN;
    }
    if (want > space)
        want = space;
    if (want > 1 && chance(100))
        want = 1 + rnd((unsigned)want);
    for (int i = 0; i < cnt; i++)
        for (size_t j = 0; j < v[i].iov_len && done < want; j++)
            t->byte[(t->sent + done++) % sizeof(t->byte)] = ((uint8_t *)v[i].iov_base)[j];
    t->sent += want;
    return (ssize_t)want;
}

short sim_tcp_poll(int fd, short events)
{
    int e = end_of(fd);
    struct sim_sock *s;
    struct sim_tcp *in, *out;
    short got = 0;

    if (e < 0)
        return 0; /* the kernel leaves a negative number out */
    s = &sim.end[e].sock;
    in = &sim.tcp[!e];
    out = &sim.tcp[e];

    if (in->moved > in->read || in->fin_moved || s->rdshut)
        got |= POLLIN;
    if (in->fin_moved || s->rdshut)
        got |= POLLRDHUP;
    if ((in->fin_moved || s->rdshut) && out->fin)
        got |= POLLHUP;
    if (out->sndbuf - (out->sent - out->moved) >= out->sndbuf / 3 + 1)
        got |= POLLOUT;
    else if (events & POLLOUT)
        out->nospace = true;
    if (s->gone)
        got |= POLLIN | POLLOUT | POLLRDHUP | POLLHUP;
    if (s->err)
        got |= POLLERR;
    return (short)(got & (events | POLLERR | POLLHUP));
}

void sim_tcp_reset(int e)
{
    struct sim_sock *s = &sim.end[e].sock;

    if (s->gone || s->refs == 0)
        return;
    sim_trace("end %d: reset arrives", e);
    s->gone = true;
    s->err = sim.tcp[!e].fin_moved ? EPIPE : ECONNRESET;
    sim.tcp[e].moved = sim.tcp[e].sent; /* what was not sent is thrown away */
    sim_edge(e);
}

bool sim_tcp_move(int d)
{
    struct sim_tcp *t = &sim.tcp[d];
    struct sim_sock *from = &sim.end[d].sock, *to = &sim.end[!d].sock;
    uint64_t under_way = t->sent - t->moved, space = t->rcvbuf - (t->moved - t->read);

    if (t->rst && (under_way == 0 || space == 0 || chance(300))) {
        t->rst = false;
        if (!to->gone) /* after a reset nothing more arrives */
            t->moved = t->sent;
        sim_tcp_reset(!d);
        return true;
    }
    if (from->gone || to->gone || (from->refs == 0 && to->refs == 0))
        return false;
    if (under_way && to->refs == 0) {
        sim_tcp_reset(d);
        return true;
    }
    if (under_way && space) {
        uint64_t n = under_way < space ? under_way : space;

        n = 1 + rnd((unsigned)n);
        t->moved += n;
        sim_edge(!d);
        room(d);
        return true;
    }
    if (!under_way && t->fin && !t->fin_moved) {
        t->fin_moved = true;
        sim_trace("end %d: FIN arrives", !d);
        sim_edge(!d);
        return true;
    }
    return false;
}

/* The last descriptor goes: FIN, or RST if bytes are unread, as the kernel does. */
static void last_close(int e)
{
    struct sim_sock *s = &sim.end[e].sock;
    struct sim_tcp *in = &sim.tcp[!e], *out = &sim.tcp[e];

    if (s->gone)
        return;
    if (s->abort || in->moved > in->read) {
        sim_trace("end %d: close resets, %llu bytes unread", e,
                  (unsigned long long)(in->moved - in->read));
        out->rst = true;
    } else {
        out->fin = true;
    }
}

static bool io_lingers(int fd)
{
    (void)fd;
    return false; /* nobody sets SO_LINGER */
}

static void io_close(int fd, bool others)
{
    (void)others;
    sim_tcp_close(fd);
}

void sim_tcp_close(int fd)
{
    int e = end_of(fd);

    if (--sim.end[e].sock.refs == 0)
        last_close(e);
}

void sim_tcp_process_gone(int e)
{
    if (sim.end[e].sock.refs > 0) {
        sim.end[e].sock.refs = 0;
        last_close(e);
    }
}

/* The engine's own descriptor is -1 once it has given the socket up. */
static ssize_t io_recv(int fd, const struct iovec *v, int cnt, uint64_t limit, int flags)
{
    return fd < 0 ? -EBADF : sim_tcp_recv(fd, v, cnt, limit, flags);
}

static ssize_t io_send(int fd, const struct iovec *v, int cnt, int flags)
{
    return fd < 0 ? -EBADF : sim_tcp_send(fd, v, cnt, flags);
}

static short io_poll(int fd, short events)
{
    return fd < 0 ? 0 : sim_tcp_poll(fd, events);
}

static bool io_counters(int fd, uint64_t *sent, uint64_t *received)
{
    int e = end_of(fd);
    struct sim_sock *s = &sim.end[e].sock;

    if (fd < 0 || s->gone || sim.tcp[e].fin || sim.tcp[!e].fin_moved)
        return false;
    *sent = sim.tcp[e].sent;
    *received = sim.tcp[!e].read;
    return true;
}

static bool io_given(int fd, bool connected, uint64_t *sent)
{
    uint64_t received;

    (void)connected;
    return io_counters(fd, sent, &received);
}

static int64_t io_beyond(int fd, uint64_t received)
{
    return fd < 0 ? 0 : (int64_t)(sim.tcp[!end_of(fd)].read - received);
}

static int io_inq(int fd)
{
    int e = end_of(fd);

    return fd < 0 ? -EBADF : (int)(sim.tcp[!e].moved - sim.tcp[!e].read);
}

static uint64_t io_received(int fd)
{
    const struct sim_tcp *t = &sim.tcp[!end_of(fd)];

    return t->moved + t->fin_moved;
}

static uint64_t io_room(int fd)
{
    return sim.tcp[!end_of(fd)].rcvbuf / 4;
}

static void io_push(int fd)
{
    (void)fd;
}

static int io_shutdown(int fd, int how)
{
    int e = end_of(fd);

    if (fd < 0)
        return -EBADF;
    if (sim.end[e].sock.gone)
        return -ENOTCONN;
    if (how != SHUT_RD)
        sim.tcp[e].fin = true;
    if (how != SHUT_WR)
        sim.end[e].sock.rdshut = true;
    return 0;
}

static bool io_aborts(int fd)
{
    return sim.end[end_of(fd)].sock.abort;
}

static void io_abort(int fd)
{
    sim.end[end_of(fd)].sock.abort = true;
}

static int io_keep(int fd)
{
    sim.end[end_of(fd)].sock.refs++;
    return 2 * SIM_FD + end_of(fd);
}

static void io_vacate(int fd)
{
    (void)fd;
}

static bool io_waits(int fd)
{
    int e = end_of(fd);

    if (fd < 0 || sim.end[e].sock.gone)
        return false;
    return !(sim.tcp[e].fin && sim.tcp[e].fin_moved); /* FIN_WAIT2, TIME_WAIT */
}

/* A thread waits in the library: the rest of the world goes on. */
static void io_wait(int fd, short events, uint64_t ns)
{
    int e = fd < 0 ? sim.inside : end_of(fd);

    (void)events;
    sim.nested = true;
    for (unsigned i = 1 + rnd(20); i > 0; i--)
        sim_background(e, true);
    sim.nested = false;
    sim.now += ns;
}

/* Inside the wait for an ACK the clock goes in small steps or past any budget: in between,
 * tx_board.c would call sched_yield. */
static uint64_t io_now(void)
{
    sim.now += rnd(1000);
    if (sim.inside >= 0 && !sim.nested) {
        sim.nested = true;
        for (unsigned i = rnd(24); i > 0; i--)
            sim_background(sim.inside, false);
        sim.nested = false;
        if (chance(150))
            sim.now += 20000000;
    }
    return sim.now;
}

static bool io_at_mark(int fd)
{
    (void)fd;
    return false;
}

static uint32_t io_bound(int fd)
{
    (void)fd;
    return sim.bound;
}

const struct fb_io sim_io = {
    .recv = io_recv,
    .send = io_send,
    .poll = io_poll,
    .counters = io_counters,
    .given = io_given,
    .beyond = io_beyond,
    .inq = io_inq,
    .at_mark = io_at_mark,
    .received = io_received,
    .room = io_room,
    .bound = io_bound,
    .push = io_push,
    .acknowledge = io_push,
    .shutdown = io_shutdown,
    .aborts = io_aborts,
    .abort = io_abort,
    .keep = io_keep,
    .vacate = io_vacate,
    .close = io_close,
    .lingers = io_lingers,
    .waits = io_waits,
    .wait = io_wait,
    .now = io_now,
};
