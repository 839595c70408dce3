/*
 * sim_app.c - the two applications: they write bytes that are noted down as they are
 * offered, and compare each byte they read with what the other wrote at that offset. Calls that the
 * kernel would do (plain halves) take several steps, so that the switch meets them under way.
 */
#include "tests/sim/sim.h"

#include <string.h>

static int fd_of(int e)
{
    return SIM_FD + e;
}

/* May this end be told of an error? In TCP as well: the peer was killed, it closed without having read
 * everything, or something else sent RST. */
static bool error_is_right(int e)
{
    struct sim_app *peer = &sim.end[!e].app;

    return sim.rst_injected || peer->killed ||
           (peer->closed && sim.end[e].app.accepted > peer->got_at_close);
}

static void wake(struct fb_watcher *w, unsigned events)
{
    struct sim_app *a = &sim.end[w == &sim.end[1].app.watcher].app;

    (void)events;
    a->woken = a->tx_woken = true;
}

void sim_app_new(int e)
{
    struct sim_app *a = &sim.end[e].app;

    a->target = chance(100) ? rnd(200) : 2000 + rnd(12000);
    a->patient = chance(500);
    a->watcher.wake = wake;
    if (a->patient)
        fb_watch(&sim.end[e].c->s, &a->watcher);
}

/* ---- sending ---- */

/* New bytes for what is not accepted yet: after EAGAIN an application may send something else. Few
 * values, and often the complement of the one before, to meet announced first bytes. */
static void offer(int e, size_t n)
{
    struct sim_app *a = &sim.end[e].app;
    uint8_t first = a->out[0];

    for (size_t i = 0; i < n; i++) {
        uint8_t b = (uint8_t)sim_next();

        if (b & 1)
            b = i ? (uint8_t)~a->out[i - 1] : 0x52;
        a->out[i] = a->log[a->accepted + i] = b;
    }
    if (a->again && chance(300))
        a->out[0] = a->log[a->accepted] = (uint8_t)~first;
    a->changed |= a->again && sim.refuse && a->out[0] != first;
    a->offered = a->accepted + n;
    a->out_n = n;
    a->out_done = 0;
}

static void sent(int e, ssize_t r)
{
    struct sim_app *a = &sim.end[e].app;

    if (r > 0) {
        a->accepted += (uint64_t)r;
        a->again = false;
        return;
    }
    a->again = r == -EAGAIN;
    if (a->again)
        return;
    a->tx_end = true;
    sim_trace("end %d: send says %zd", e, r);
    if (a->fin && r == -EPIPE)
        return;
    a->told = true;
    /* Having announced that the next byte is not c, met a kernel without memory, and then been given
     * c by an application that thought again, with the rail gone: nothing can be said to the peer. */
    if (!error_is_right(e) && !sim.end[!e].app.closed && !(a->changed && r == -ECONNRESET))
        sim_fail("end %d: send says %zd", e, r);
}

/* One more moment in the kernel's send; then, perhaps, back from it. */
static void plain_send(int e)
{
    struct sim_app *a = &sim.end[e].app;
    struct iovec v = {a->out + a->out_done, a->out_n - a->out_done};
    struct iovec all = {a->out, a->out_n};
    ssize_t r = v.iov_len ? sim_tcp_send(fd_of(e), &v, 1, 0) : 0;

    if (r > 0) {
        a->out_done += (size_t)r;
        a->accepted += (uint64_t)r;
    }
    if (r < 0 && r != -EAGAIN && a->out_done > 0)
        sim.end[e].sock.err = r == -EPIPE ? 0 : (int)-r; /* the kernel keeps it for the next call */
    if (r >= 0 && a->out_done < a->out_n && (a->send_blocks || chance(200)))
        return;
    if (r == -EAGAIN && a->send_blocks)
        return;
    a->sending = false;
    if (a->out_done > 0)
        r = (ssize_t)a->out_done;
    fb_tx_leave(&sim.end[e].c->s, fd_of(e), r, &all, 1, 0);
    if (r <= 0)
        sent(e, r);
}

static bool tx_sleeps(int e)
{
    struct sim_app *a = &sim.end[e].app;
    struct fb_stream *s = &sim.end[e].c->s;

    if (!a->tx_asleep)
        return false;
    if (!a->tx_woken && !sim_tcp_poll(fd_of(e), fb_kernel_events(s, POLLOUT)))
        return true;
    a->tx_woken = false;
    a->tx_asleep = fb_arm(s, fd_of(e), POLLOUT) == 0;
    return a->tx_asleep;
}

bool sim_app_send(int e)
{
    struct sim_app *a = &sim.end[e].app;
    struct fb_stream *s = &sim.end[e].c->s;
    bool dead = sim.draining && (sim.end[!e].app.killed) && a->dead_writes < 4000;
    struct iovec v[2];
    size_t n, cut;
    ssize_t r;

    if (!sim.end[e].alive || a->closed)
        return false;
    if (a->sending) {
        plain_send(e);
        return true;
    }
    if (a->tx_end || a->fin || a->stop || (a->accepted >= a->target && !dead) ||
        a->accepted + sizeof(a->out) > SIM_BYTES)
        return false;
    if (tx_sleeps(e))
        return false;
    n = 1 + rnd(chance(100) ? (unsigned)sizeof(a->out) : sim.sizes);
    offer(e, n);
    if (fb_tx_enter(s)) {
        a->sending = true;
        a->send_blocks = chance(500);
        return true;
    }
    cut = rnd((unsigned)n + 1);
    v[0] = (struct iovec){a->out, cut};
    v[1] = (struct iovec){a->out + cut, n - cut};
    if (sim.inside < 0)
        sim.inside = e;
    r = fb_sendv(s, fd_of(e), v, 2, MSG_DONTWAIT | MSG_NOSIGNAL);
    sim.inside = -1;
    if (dead && r > 0)
        a->dead_writes += (uint32_t)r;
    sent(e, r);
    if (r == -EAGAIN && a->patient) {
        a->tx_woken = false;
        a->tx_asleep = fb_arm(s, fd_of(e), POLLOUT) == 0;
    }
    return r != -EAGAIN;
}

/* ---- receiving ---- */

static void compare(int e, size_t n)
{
    struct sim_app *a = &sim.end[e].app, *peer = &sim.end[!e].app;
    size_t i = 0;

    if (a->got + n > peer->offered) {
        sim_fail("end %d: %zu bytes at %llu, but only %llu were written", e, n,
                 (unsigned long long)a->got, (unsigned long long)peer->offered);
        return;
    }
    for (int k = 0; k < a->cnt; k++)
        for (size_t j = 0; j < a->v[k].iov_len && i < n; j++, i++)
            if (((uint8_t *)a->v[k].iov_base)[j] != peer->log[a->got + i]) {
                sim_fail("end %d: byte %llu is wrong", e, (unsigned long long)a->got + i);
                return;
            }
}

static void got(int e, ssize_t r, int flags)
{
    struct sim_app *a = &sim.end[e].app, *peer = &sim.end[!e].app;

    if (r > 0) {
        compare(e, (size_t)r);
        if (a->got + (uint64_t)r > a->shown)
            a->shown = a->got + (uint64_t)r;
        if (!(flags & MSG_PEEK))
            a->got += (uint64_t)r;
        return;
    }
    if (a->shown > a->got)
        sim_fail("end %d: %llu bytes were shown by MSG_PEEK, now recv says %zd", e,
                 (unsigned long long)(a->shown - a->got), r);
    if (r == -EAGAIN)
        return;
    a->rx_end = true;
    sim_trace("end %d: recv says %zd at %llu", e, r, (unsigned long long)a->got);
    if (r == 0) {
        a->eof = true;
        /* After a hand-over the kernel alone carries the stream, and a sender that is killed before
         * its residue is in TCP ends it too soon without a sign. */
        if (a->got != peer->accepted && !a->told && !(peer->killed && a->left))
            sim_fail("end %d: end of stream at %llu of %llu", e, (unsigned long long)a->got,
                     (unsigned long long)peer->accepted);
        if (!peer->fin && !peer->closed && !peer->killed && !sim.rst_injected)
            sim_fail("end %d: end of stream, but the peer goes on", e);
        return;
    }
    a->told = true;
    if (!error_is_right(e))
        sim_fail("end %d: recv says %zd at %llu of %llu", e, r, (unsigned long long)a->got,
                 (unsigned long long)peer->accepted);
}

static void ask(struct sim_app *a)
{
    size_t n = 1 + rnd(chance(500) ? 40 : (unsigned)sizeof(a->in)), cut = rnd((unsigned)n + 1);

    a->v[0] = (struct iovec){a->in, cut};
    a->v[1] = (struct iovec){a->in + cut, n - cut};
    a->cnt = 2;
    a->flags = chance(sim.peek) ? MSG_PEEK : 0;
}

static ssize_t stream_recv(int e, int flags)
{
    struct sim_app *a = &sim.end[e].app;
    ssize_t r = fb_recvv(&sim.end[e].c->s, fd_of(e), a->v, a->cnt, flags | MSG_DONTWAIT);

    got(e, r, flags);
    return r;
}

/* A thread in the kernel's own receive. */
static bool plain_recv(int e)
{
    struct sim_app *a = &sim.end[e].app;
    struct fb_stream *s = &sim.end[e].c->s;
    ssize_t r;

    if (a->receiving == 1) {
        a->in_r = sim_tcp_recv(fd_of(e), a->v, a->cnt, UINT64_MAX, a->flags);
        if (a->in_r == -EAGAIN && a->recv_blocks)
            return false;
        a->receiving = 2;
        if (chance(500))
            return true;
    }
    a->receiving = 0;
    r = fb_rx_leave(s, fd_of(e), a->in_r, a->v, a->cnt, a->flags);
    if (r == FB_RETRY)
        stream_recv(e, a->flags);
    else
        got(e, r, a->flags);
    return true;
}

static bool rx_sleeps(int e)
{
    struct sim_app *a = &sim.end[e].app;
    struct fb_stream *s = &sim.end[e].c->s;

    if (a->sleeper) { /* asleep in the kernel's poll since the stream was plain */
        if (!sim_tcp_poll(fd_of(e), POLLIN) || chance(500))
            return true;
        fb_sleeper_end(a->sleeper);
        a->sleeper = NULL;
        return false;
    }
    if (!a->asleep)
        return false;
    if (!a->woken && !sim_tcp_poll(fd_of(e), fb_kernel_events(s, POLLIN)))
        return true;
    a->woken = false;
    a->asleep = fb_arm(s, fd_of(e), POLLIN) == 0;
    return a->asleep;
}

/* poll(2) in a thread of its own: exact, and on a plain stream asleep in the kernel. */
static void poll_first(int e)
{
    struct sim_app *a = &sim.end[e].app;
    static struct pollfd p[2];

    p[e] = (struct pollfd){.fd = fd_of(e), .events = POLLIN};
    if (sim.end[!e].app.sleeper)
        return; /* one thread, so one record */
    a->sleeper = fb_sleeper_poll(&p[e], 1);
    if (!fb_plain(&sim.end[e].c->s)) {
        fb_sleeper_end(a->sleeper);
        a->sleeper = NULL;
    }
}

bool sim_app_recv(int e)
{
    struct sim_app *a = &sim.end[e].app;
    struct fb_stream *s = &sim.end[e].c->s;
    short ready;
    ssize_t r;

    if (!sim.end[e].alive || a->closed || a->rx_end)
        return false;
    if (a->receiving)
        return plain_recv(e);
    if (rx_sleeps(e))
        return false;
    ask(a);
    if (chance(50) && !a->sleeper)
        poll_first(e);
    if (a->sleeper)
        return false;
    if (fb_rx_enter(s)) {
        a->receiving = 1;
        a->recv_blocks = chance(500);
        return true;
    }
    ready = chance(200) ? fb_ready(s, fd_of(e), POLLIN) : -1;
    r = stream_recv(e, a->flags);
    if (ready >= 0 && (r == -EAGAIN) == ((ready & (POLLIN | POLLHUP | POLLERR)) != 0))
        sim_fail("end %d: readiness was %x, then recv says %zd", e, (unsigned)ready, r);
    if (r == -EAGAIN && a->patient) {
        a->woken = false;
        a->asleep = fb_arm(s, fd_of(e), POLLIN) == 0;
    }
    return r != -EAGAIN;
}

/* ---- ends ---- */

void sim_app_shutdown(int e)
{
    struct sim_app *a = &sim.end[e].app;
    int r;

    if (!sim.end[e].alive || a->closed || a->fin || a->sending)
        return;
    sim_trace("end %d: shutdown at %llu", e, (unsigned long long)a->accepted);
    a->fin = true;
    r = fb_shutdown(&sim.end[e].c->s, fd_of(e), SHUT_WR);
    if (r < 0 && !(r == -ENOTCONN && sim.end[e].sock.gone))
        sim_fail("end %d: shutdown says %d", e, r);
}

void sim_app_close(int e)
{
    struct sim_app *a = &sim.end[e].app;
    struct fb_stream *s = &sim.end[e].c->s;

    if (!sim.end[e].alive || a->closed || a->sending || a->receiving || a->sleeper)
        return;
    sim_trace("end %d: close, sent %llu, read %llu", e, (unsigned long long)a->accepted,
              (unsigned long long)a->got);
    if (a->patient)
        fb_unwatch(s, &a->watcher);
    a->closed = true;
    a->got_at_close = a->got;
    fb_close(s, fd_of(e));
    sim_tcp_close(fd_of(e));
    fb_put(s);
}

void sim_app_kill(int e)
{
    struct sim_end *end = &sim.end[e];

    if (!end->alive)
        return;
    sim_trace("end %d: killed, sent %llu, read %llu", e, (unsigned long long)end->app.accepted,
              (unsigned long long)end->app.got);
    end->app.killed = true;
    end->alive = false;
    conn_set(end->c, CF_PINNED); /* the budget of the one that lives does not count it */
    if (end->app.sleeper)
        fb_sleeper_end(end->app.sleeper);
    end->app.sleeper = NULL;
    sim_tcp_process_gone(e);
    sim_wire_process_gone(e);
}

void sim_app_pin(int e, bool wait)
{
    struct sim_app *a = &sim.end[e].app;

    if (!sim.end[e].alive || a->closed || a->pinned)
        return;
    sim_trace("end %d: pinned%s", e, wait ? ", waits" : "");
    a->pinned = true;
    sim.inside = e;
    fb_pin(&sim.end[e].c->s, RSN_FORKED, wait);
    sim.inside = -1;
    sim_app_unshow(e);
}

/* A hand-over that nobody waits for: until the peer's library has answered, bytes of the ring that
 * MSG_PEEK has shown are in neither place. */
void sim_app_unshow(int e)
{
    sim.end[e].app.shown = sim.end[e].app.got;
    sim.end[e].app.left = true;
}

/* Nothing is left to do or to hear for this application. */
bool sim_app_done(int e)
{
    return !sim.end[e].alive || sim.end[e].app.closed;
}

/* ---- what must hold at any time ---- */

void sim_app_check(void)
{
    for (int e = 0; e < 2; e++) {
        struct fb_conn *c = sim.end[e].c, *p = sim.end[!e].c;
        struct sim_app *a = &sim.end[e].app;
        uint8_t state = c->tx.state;

        if (a->closed || a->killed)
            continue;
        if (c->s.pub->tx > a->offered)
            sim_fail("end %d: tx %llu of %llu offered", e, (unsigned long long)c->s.pub->tx,
                     (unsigned long long)a->offered);
        if (!a->receiving && !sim.nested && c->s.pub->rx != a->got)
            sim_fail("end %d: rx %llu, the application has %llu", e,
                     (unsigned long long)c->s.pub->rx, (unsigned long long)a->got);
        if (state == TX_R && !sim.end[!e].app.closed && c->tx.F > c->tx.S && c->tx.F > p->s.pub->rx)
            sim_fail("end %d: F %llu beyond rx %llu", e, (unsigned long long)c->tx.F,
                     (unsigned long long)p->s.pub->rx);
        if (state >= TX_R && c->tx.F > c->s.pub->tx)
            sim_fail("end %d: F beyond tx", e);
        if (!a->sending && !sim.end[e].sock.gone && c->ktx != sim.tcp[e].sent)
            sim_fail("end %d: the kernel took %llu, counted are %llu", e,
                     (unsigned long long)sim.tcp[e].sent, (unsigned long long)c->ktx);
        if (!a->receiving && c->krx != sim.tcp[!e].read)
            sim_fail("end %d: the kernel gave %llu, counted are %llu", e,
                     (unsigned long long)sim.tcp[!e].read, (unsigned long long)c->krx);
    }
}
