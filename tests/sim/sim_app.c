/*
 * sim_app.c - the two applications: how they begin and end, and what must hold at any time.
 */
#include "tests/sim/sim.h"

#include "ipoib_fallback/rx.h"

#include <string.h>
#include <sys/mman.h>

static int fd_of(int e)
{
    return SIM_FD + e;
}

bool sim_error_is_right(int e)
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
    a->threads = chance(350) ? SIM_THREADS : 1;
    a->patient = chance(500);
    a->watcher.wake = wake;
    if (a->patient)
        fb_watch(&sim.end[e].c->s, &a->watcher, NULL);
}

/* ---- ends ---- */

void sim_app_shutdown(int e)
{
    struct sim_app *a = &sim.end[e].app;
    int r;

    if (!sim.end[e].alive || a->closed || a->fin || sim_sending(e))
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

    if (!sim.end[e].alive || a->closed || sim_sending(e) || sim_receiving(e) || a->sleeper)
        return;
    sim_trace("end %d: close, sent %llu, read %llu", e, (unsigned long long)a->accepted,
              (unsigned long long)a->got);
    if (a->patient)
        fb_unwatch(s, &a->watcher, NULL);
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

bool sim_app_ask_step(int e)
{
    struct sim_app *a = &sim.end[e].app;
    struct fb_conn *c = sim.end[e].c;
    size_t n;
    void *p;

    if (!a->asked || !sim.end[e].alive || a->closed || sim.nested || sim.inside >= 0)
        return false;
    /* Mostly where it costs most. */
    if (!a->pinned && !chance(c->x->rx.state == RX_gS || c->x->rx.state == RX_sk ? 300 : 2))
        return false;
    sim_app_pin(e, false);
    (void)end_settled(c, RSN_SHARED);
    (void)rx_front_take(c, NULL, 0, -1);
    if (chance(100))
        (void)rx_front_look(c);
    n = rx_front_due(c);
    if (!n)
        return false;
    p = mmap(NULL, rx_front_size(n), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p != MAP_FAILED && rx_front_take(c, p, rx_front_size(n), -1)) {
        sim.fronts += rx_front_left(c) > 0;
        return true;
    }
    munmap(p, rx_front_size(n));
    return false;
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

/* What both ends say has passed is the same, whatever way it took. */
static void check_digests(int from, const struct fb_digest *tx, const struct fb_digest *rx)
{
    for (uint64_t both = tx->valid & rx->valid; both; both &= both - 1) {
        int i = __builtin_ctzll(both);

        if (tx->ring[i % 8] != rx->ring[i % 8])
            sim_fail("end %d: the bytes before %llu have another digest than at the other end",
                     from, 16ull << i);
    }
}

void sim_app_check(void)
{
    for (int e = 0; e < 2; e++) {
        struct fb_conn *c = sim.end[e].c, *p = sim.end[!e].c;
        struct sim_app *a = &sim.end[e].app;
        uint8_t state = c->x->tx.state;

        if (a->closed || a->killed)
            continue;
        if (c->s.pub->tx > a->offered)
            sim_fail("end %d: tx %llu of %llu offered", e, (unsigned long long)c->s.pub->tx,
                     (unsigned long long)a->offered);
        if (!sim_receiving(e) && !sim.nested && c->s.pub->rx - rx_front_left(c) != a->got)
            sim_fail("end %d: rx %llu, in front %llu, the application has %llu", e,
                     (unsigned long long)c->s.pub->rx, (unsigned long long)rx_front_left(c),
                     (unsigned long long)a->got);
        if (state == TX_R && !sim.end[!e].app.closed && c->x->tx.F > c->x->tx.S &&
            c->x->tx.F > p->s.pub->rx)
            sim_fail("end %d: F %llu beyond rx %llu", e, (unsigned long long)c->x->tx.F,
                     (unsigned long long)p->s.pub->rx);
        if (state >= TX_R && c->x->tx.F > c->s.pub->tx)
            sim_fail("end %d: F beyond tx", e);
        if (!sim_sending(e) && !sim.end[e].sock.gone && conn_ktx(c) != sim.tcp[e].sent)
            sim_fail("end %d: the kernel took %llu, counted are %llu", e,
                     (unsigned long long)sim.tcp[e].sent, (unsigned long long)conn_ktx(c));
        if (!sim_receiving(e) && conn_krx(c) != sim.tcp[!e].read)
            sim_fail("end %d: the kernel gave %llu, counted are %llu", e,
                     (unsigned long long)sim.tcp[!e].read, (unsigned long long)conn_krx(c));
        check_digests(e, &conn_seen(c)->tx, &conn_seen(p)->rx);
    }
}
