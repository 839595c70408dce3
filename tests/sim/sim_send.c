/*
 * sim_send.c - the threads of an application that send: they note down what they offer. Calls that
 * the kernel would do (a plain half) take several steps, so that the switch and the other thread
 * meet them under way; which thread's bytes come first is what the kernel makes of it.
 */
#include "tests/sim/sim.h"

#include "tests/calls.h"

#include <string.h>

static int fd_of(int e)
{
    return SIM_FD + e;
}

bool sim_sending(int e)
{
    struct sim_app *a = &sim.end[e].app;

    return a->put[0].in_kernel || a->put[1].in_kernel;
}

/* All that may be written by now: what threads have in hand comes after what was accepted. */
static void offered(struct sim_app *a, const struct sim_put *also)
{
    a->offered = a->accepted;
    for (int i = 0; i < SIM_THREADS; i++)
        if (a->put[i].in_kernel || &a->put[i] == also)
            a->offered += a->put[i].n - a->put[i].done;
}

/* New bytes for what is not accepted yet: after EAGAIN an application may send something else. Few
 * values, and often the complement of the one before, to meet announced first bytes. */
static void offer(int e, struct sim_put *p, size_t n)
{
    struct sim_app *a = &sim.end[e].app;
    uint8_t first = a->last_first;

    for (size_t i = 0; i < n; i++) {
        uint8_t b = (uint8_t)sim_next();

        if (b & 1)
            b = i ? (uint8_t)~p->bytes[i - 1] : 0x52;
        p->bytes[i] = b;
    }
    if (a->again && chance(300))
        p->bytes[0] = (uint8_t)~first;
    a->changed |= a->again && sim.refuse && p->bytes[0] != first;
    a->last_first = p->bytes[0];
    p->n = n;
    p->done = 0;
    offered(a, p);
}

/* The kernel, or the engine, is about to take bytes of p: they have the next numbers. */
static void number(struct sim_app *a, const struct sim_put *p)
{
    memcpy(a->log + a->accepted, p->bytes + p->done, p->n - p->done);
}

static void sent(int e, ssize_t r)
{
    struct sim_app *a = &sim.end[e].app;

    if (r > 0) {
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
    /* The end had announced that the next byte is not c, and the kernel had no memory to send one.
     * Then the application, which thought again, or its other thread gave c after all, with the
     * rail gone: nothing can be said to the peer. */
    if (!sim_error_is_right(e) && !sim.end[!e].app.closed &&
        !((a->changed || a->threads > 1) && r == -ECONNRESET))
        sim_fail("end %d: send says %zd", e, r);
}

/* One more moment in the kernel's send; then, perhaps, back from it. */
static void plain_send(int e, struct sim_put *p)
{
    struct sim_app *a = &sim.end[e].app;
    struct iovec v = {p->bytes + p->done, p->n - p->done};
    struct iovec all = {p->bytes, p->n};
    ssize_t r;

    number(a, p);
    r = v.iov_len ? sim_tcp_send(fd_of(e), &v, 1, 0) : 0;
    sim_trace("end %d: kernel's send says %zd at %llu", e, r, (unsigned long long)a->accepted);
    if (r > 0) {
        p->done += (size_t)r;
        a->accepted += (uint64_t)r;
    }
    if (r < 0 && r != -EAGAIN && p->done > 0)
        sim.end[e].sock.err = r == -EPIPE ? 0 : (int)-r; /* the kernel keeps it for the next call */
    if (r >= 0 && p->done < p->n && (p->blocks || chance(200)))
        return;
    if (r == -EAGAIN && p->blocks)
        return;
    p->in_kernel = false;
    offered(a, NULL);
    if (p->done > 0)
        r = (ssize_t)p->done;
    if (chance(250) || !call_left(&sim.end[e].c->s, r, false))
        fb_tx_leave(&sim.end[e].c->s, r, &all, 1);
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
    struct sim_put *p = &a->put[a->threads > 1 ? rnd(2) : 0];
    bool dead = sim.draining && (sim.end[!e].app.killed) && a->dead_writes < 4000;
    struct iovec v[2];
    size_t n, cut;
    ssize_t r;

    if (!sim.end[e].alive || a->closed)
        return false;
    if (p->in_kernel) {
        plain_send(e, p);
        return true;
    }
    if (a->tx_end || a->fin || a->stop || (a->accepted >= a->target && !dead) ||
        a->accepted + sizeof(a->put) > SIM_BYTES)
        return false;
    if (tx_sleeps(e))
        return false;
    n = 1 + rnd(chance(100) ? (unsigned)sizeof(p->bytes) : sim.sizes);
    offer(e, p, n);
    if (fb_tx_enter(s)) {
        p->in_kernel = true;
        p->blocks = chance(500);
        return true;
    }
    cut = rnd((unsigned)n + 1);
    v[0] = (struct iovec){p->bytes, cut};
    v[1] = (struct iovec){p->bytes + cut, n - cut};
    if (sim.inside < 0)
        sim.inside = e;
    number(a, p);
    r = sim.steps % 2 && n ? (ssize_t)fb_send_quick(s, fd_of(e), p->bytes, n, MSG_DONTWAIT) : 0;
    if (r == 0)
        r = fb_sendv(s, fd_of(e), v, 2, MSG_DONTWAIT | MSG_NOSIGNAL);
    sim.inside = -1;
    if (dead && r > 0)
        a->dead_writes += (uint32_t)r;
    sim_trace("end %d: send says %zd at %llu", e, r, (unsigned long long)a->accepted);
    if (r > 0)
        a->accepted += (uint64_t)r;
    offered(a, NULL);
    sent(e, r);
    if (r == -EAGAIN && a->patient) {
        a->tx_woken = false;
        a->tx_asleep = fb_arm(s, fd_of(e), POLLOUT) == 0;
    }
    return r != -EAGAIN;
}
