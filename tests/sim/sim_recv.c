/*
 * sim_recv.c - the threads of an application that receive: they compare each byte with what the
 * other end wrote at that offset. The kernel's own receives take several steps, so that the guard
 * and the other thread meet them under way; the first thread sleeps in poll at times.
 */
#include "tests/sim/sim.h"

#include "tests/calls.h"

#include <string.h>

static int fd_of(int e)
{
    return SIM_FD + e;
}

bool sim_receiving(int e)
{
    struct sim_app *a = &sim.end[e].app;

    return a->get[0].stage || a->get[1].stage;
}

uint64_t sim_in_hand(int e)
{
    struct sim_app *a = &sim.end[e].app;
    uint64_t n = 0;

    for (int i = 0; i < SIM_THREADS; i++)
        if (a->get[i].stage == 2 && a->get[i].r > 0 && !(a->get[i].flags & MSG_PEEK))
            n += (uint64_t)a->get[i].r;
    return n;
}

static void compare(int e, const struct sim_get *g, size_t n)
{
    struct sim_app *peer = &sim.end[!e].app;
    size_t i = 0;

    if (g->at + n > peer->offered) {
        sim_fail("end %d: %zu bytes at %llu, but only %llu were written", e, n,
                 (unsigned long long)g->at, (unsigned long long)peer->offered);
        return;
    }
    for (int k = 0; k < g->cnt; k++)
        for (size_t j = 0; j < g->v[k].iov_len && i < n; j++, i++)
            if (((uint8_t *)g->v[k].iov_base)[j] != peer->log[g->at + i]) {
                sim_fail("end %d: byte %llu is wrong", e, (unsigned long long)g->at + i);
                return;
            }
}

static void end_of_stream(int e)
{
    struct sim_app *a = &sim.end[e].app, *peer = &sim.end[!e].app;

    a->eof = true;
    /* After a hand-over the kernel alone carries the stream, and a sender that is killed before
     * its residue is in TCP ends it too soon without a sign. */
    if (a->got + sim_in_hand(e) != peer->accepted && !a->told && !(peer->killed && a->left))
        sim_fail("end %d: end of stream at %llu of %llu", e, (unsigned long long)a->got,
                 (unsigned long long)peer->accepted);
    if (!peer->fin && !peer->closed && !peer->killed && !sim.rst_injected)
        sim_fail("end %d: end of stream, but the peer goes on", e);
}

/* g's call has come back with r. */
static void got(int e, const struct sim_get *g, ssize_t r)
{
    struct sim_app *a = &sim.end[e].app, *peer = &sim.end[!e].app;

    sim_trace("end %d: thread %d: %s says %zd at %llu", e, (int)(g - a->get),
              g->flags & MSG_PEEK ? "peek" : "recv", r, (unsigned long long)g->at);
    if (r > 0) {
        compare(e, g, (size_t)r);
        if (g->at + (uint64_t)r > a->shown)
            a->shown = g->at + (uint64_t)r;
        if (!(g->flags & MSG_PEEK))
            a->got += (uint64_t)r;
        return;
    }
    /* Another thread inside the kernel's receive may have them in a moment, and then
     * has them first. */
    if (g->shown > g->at && !sim_receiving(e))
        sim_fail("end %d: %llu bytes were shown by MSG_PEEK, now recv says %zd", e,
                 (unsigned long long)(g->shown - g->at), r);
    if (r == -EAGAIN)
        return;
    a->rx_end = true;
    if (r == 0) {
        end_of_stream(e);
        return;
    }
    a->told = true;
    if (!sim_error_is_right(e))
        sim_fail("end %d: recv says %zd at %llu of %llu", e, r, (unsigned long long)a->got,
                 (unsigned long long)peer->accepted);
}

static void ask(struct sim_get *g)
{
    size_t n = 1 + rnd(chance(500) ? 40 : (unsigned)sizeof(g->bytes)), cut = rnd((unsigned)n + 1);

    g->v[0] = (struct iovec){g->bytes, cut};
    g->v[1] = (struct iovec){g->bytes + cut, n - cut};
    g->cnt = 2;
    g->flags = chance(sim.peek) ? MSG_PEEK : 0;
}

static ssize_t stream_recv(int e, struct sim_get *g)
{
    struct fb_stream *s = &sim.end[e].c->s;
    ssize_t r = 0;

    if (!g->flags && sim.steps % 2) /* with room for less */
        r = fb_recv_quick(s, fd_of(e), g->v[0].iov_base, g->v[0].iov_len, MSG_DONTWAIT);
    if (r == 0)
        r = fb_recvv(s, fd_of(e), g->v, g->cnt, g->flags | MSG_DONTWAIT);
    g->at = sim.end[e].app.got + sim_in_hand(e);
    g->shown = sim.end[e].app.shown;
    got(e, g, r);
    return r;
}

/* A thread in the kernel's own receive, which mostly ends by the short way where that may be. */
static bool plain_recv(int e, struct sim_get *g)
{
    struct sim_app *a = &sim.end[e].app;
    struct fb_stream *s = &sim.end[e].c->s;
    ssize_t r;

    if (g->stage == 1) {
        g->at = a->got + sim_in_hand(e);
        g->shown = a->shown;
        g->r = sim_tcp_recv(fd_of(e), g->v, g->cnt, UINT64_MAX, g->flags);
        if (g->r == -EAGAIN && g->blocks)
            return false;
        a->told |= g->r < 0 && g->r != -EAGAIN; /* the other thread may meet the end first */
        g->stage = 2;
        if (chance(500))
            return true;
    }
    g->stage = 0;
    r = g->r;
    if (g->flags || chance(250) || !call_left(s, r, true))
        r = fb_rx_leave(s, fd_of(e), r, g->v, g->cnt, g->flags);
    if (r == FB_RETRY)
        stream_recv(e, g);
    else
        got(e, g, r);
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

/* The first thread waits in the ways that there are; the second one only receives. */
bool sim_app_recv(int e)
{
    struct sim_app *a = &sim.end[e].app;
    struct fb_stream *s = &sim.end[e].c->s;
    int thread = a->threads > 1 ? (int)rnd(2) : 0;
    struct sim_get *g = &a->get[thread];
    short ready;
    ssize_t r;

    if (!sim.end[e].alive || a->closed)
        return false;
    if (g->stage)
        return plain_recv(e, g);
    if (thread == 0 && rx_sleeps(e))
        return false;
    if (a->rx_end)
        return false;
    ask(g);
    if (thread == 0 && chance(50) && !a->sleeper)
        poll_first(e);
    if (thread == 0 && a->sleeper)
        return false;
    if (fb_rx_enter(s)) {
        g->stage = 1;
        g->blocks = chance(500);
        return true;
    }
    ready = chance(200) ? fb_ready(s, fd_of(e), POLLIN) : -1;
    r = stream_recv(e, g);
    /* An end is only told once the other thread has come back, or has been woken by it. */
    if (ready >= 0 && !sim_receiving(e) && !a->sleeper &&
        (r == -EAGAIN) == ((ready & (POLLIN | POLLHUP | POLLERR)) != 0))
        sim_fail("end %d: readiness was %x, then recv says %zd", e, (unsigned)ready, r);
    if (r == -EAGAIN && a->patient && thread == 0) {
        a->woken = false;
        a->asleep = fb_arm(s, fd_of(e), POLLIN) == 0;
    }
    return r != -EAGAIN;
}
