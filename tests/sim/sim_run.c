/*
 * sim_run.c - one schedule: sets the world up from a seed, does small steps in random
 * order with a few events among them, then lets both applications finish and demands that
 * they do. Every schedule has its own weights, so that some starve the wire and
 * others the applications.
 */
#include "ipoib_fallback/budget.h"
#include "ipoib_fallback/tx.h"
#include "ipoib_fallback/find.h"
#include "ipoib_fallback/reach.h"
#include "tests/sim/sim.h"

#include "config/env.h"
#include "config/log.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

struct sim sim;

void sim_fail(const char *fmt, ...)
{
    va_list ap;

    if (sim.failed)
        return;
    sim.failed = true;
    va_start(ap, fmt);
    vsnprintf(sim.why, sizeof(sim.why), fmt, ap);
    va_end(ap);
    sim_trace("FAILED: %s", sim.why);
}

void sim_trace(const char *fmt, ...)
{
    va_list ap;

    if (!sim.trace)
        return;
    fprintf(stderr, "%6u: ", sim.steps);
    va_start(ap, fmt);
    vfprintf(stderr, fmt, ap);
    va_end(ap);
    fputc('\n', stderr);
}

enum event {
    EV_LEAVE,
    EV_PIN,
    EV_PIN_WAIT,
    EV_ASKED,
    EV_FAIL,
    EV_SHUTDOWN,
    EV_CLOSE,
    EV_KILL,
    EV_RST,
    EV_POLITE
};

/* The stream leaves by plan and may board again: fork, exec that failed. */
static void leave(int e)
{
    struct fb_conn *c = sim.end[e].c;

    if (!sim.end[e].alive || sim.end[e].app.closed)
        return;
    sim_trace("end %d: leaves by plan", e);
    atomic_store(&c->x->leave_why, (uint32_t)RSN_FORKED);
    conn_todo_tx(c, TODO_LEAVE);
    conn_todo_rx(c, TODO_LEAVE);
    conn_serve(c);
    sim_app_unshow(e);
}

static void event(enum event ev, int e)
{
    switch (ev) {
    case EV_LEAVE:
        leave(e);
        break;
    case EV_PIN:
        sim_app_pin(e, false);
        break;
    case EV_PIN_WAIT:
        sim_app_pin(e, true);
        break;
    case EV_ASKED:
        sim_trace("end %d: a child will ask", e);
        sim.end[e].app.asked = true;
        break;
    case EV_FAIL:
        sim_trace("the rail is cut, end %d may see it first", e);
        sim_wire_fail(e);
        break;
    case EV_SHUTDOWN:
        sim_app_shutdown(e);
        break;
    case EV_CLOSE:
        sim.end[e].app.early = !sim.end[e].app.rx_end;
        sim_app_close(e);
        break;
    case EV_KILL:
        if (chance(500))
            sim.end[e].doom = 1;
        else
            sim_app_kill(e);
        break;
    case EV_RST:
        if (chance(500) && !sim.end[e].doom) {
            sim.end[e].doom = 2;
            break;
        }
        sim.end[e].doom = 0;
        sim_trace("RST to end %d", e);
        sim.rst_injected = true;
        sim_tcp_reset(e);
        sim_tcp_reset(!e);
        break;
    case EV_POLITE: /* no more writes; closes when it has read everything */
        sim_trace("both ends write no more");
        sim.end[0].app.stop = sim.end[1].app.stop = true;
        break;
    }
}

static bool one(enum sim_step what, int e)
{
    uint64_t t;

    switch (what) {
    case STEP_SEND:
        return sim_app_send(e);
    case STEP_RECV:
        return sim_app_recv(e);
    case STEP_JOB:
        return sim_loop_job(e) || sim_rdv_answer();
    case STEP_WATCH:
        return sim_loop_watch(e);
    case STEP_TIMER:
        return sim_app_ask_step(e) | sim_loop_timer(e);
    case STEP_TCP:
        return sim_tcp_move(e);
    case STEP_WIRE:
        return sim_wire_move(e);
    case STEP_DRAIN:
        return sim_wire_drain(e);
    case STEP_CLOCK:
        t = sim_loop_next_timer();
        if (t > sim.now && chance(t - sim.now < 100000000 ? 200 : sim_loop_busy() ? 1 : 100))
            sim.now = t;
        else
            sim.now += rnd(100000);
        return false;
    default:
        return false;
    }
}

static bool step(enum sim_step what, int e)
{
    bool before = sim.on_loop, any;

    /* Whoever waits drains; mostly that is the progress thread. */
    sim.on_loop = what == STEP_JOB || what == STEP_WATCH || what == STEP_TIMER ||
                  (what == STEP_DRAIN && chance(700));
    any = one(what, e);
    sim.on_loop = before;
    return any;
}

bool sim_background(int e, bool own)
{
    enum sim_step what = (enum sim_step)rnd(STEPS);
    int who = (int)rnd(2);
    bool before = sim.on_loop, any;

    sim.steps++;
    switch (what) {
    case STEP_SEND: /* the peer's would wait for us in turn */
    case STEP_CLOCK:
        return false;
    case STEP_JOB: /* not the answers of a rendezvous, which want our locks too */
        if (who == e && !own)
            return false;
        sim.on_loop = true;
        any = sim_loop_job(who);
        sim.on_loop = before;
        return any;
    case STEP_TIMER:
        return who == e && !own ? false : step(what, who);
    case STEP_RECV:
        return who == e ? false : step(what, who);
    default:
        return step(what, who);
    }
}

static void one_of_all(void)
{
    unsigned sum = 0, pick;
    int what = 0;

    for (int i = 0; i < STEPS; i++)
        sum += sim.weight[i];
    pick = rnd(sum);
    while (pick >= sim.weight[what])
        pick -= sim.weight[what++];
    step((enum sim_step)what, (int)rnd(2));
}

/* Between the tracks is where a death costs most. */
static void dooms(void)
{
    for (int e = 0; e < 2; e++) {
        uint8_t state = sim.end[e].c->x->tx.state;

        if (!sim.end[e].doom || (state != TX_W2 && state < TX_L1) || !chance(300))
            continue;
        if (sim.end[e].doom == 1)
            sim_app_kill(e);
        else
            event(EV_RST, e);
        sim.end[e].doom = 0;
    }
}

static void check(void)
{
    sim.steps++;
    sim_app_check();
    sim_wire_check();
}

/* Both applications write what they want to, read to the end and close. Whatever was done before,
 * this must come to an end. */
static void finish(void)
{
    unsigned idle = 0, rounds = 0; /* rounds: since a byte was written or read, or an end closed */
    uint64_t before = 0;

    sim.draining = true;
    cfg.stream.idle_ns = 0; /* its looks would be an event for ever */
    while (!sim.failed) {
        bool any = false;

        for (int i = 0; i < 2 * STEPS; i++)
            any |= step((enum sim_step)rnd(STEPS), (int)rnd(2));
        check();
        for (int e = 0; e < 2; e++) {
            struct sim_app *a = &sim.end[e].app, *p = &sim.end[!e].app;
            bool wrote = a->fin || a->tx_end || (a->accepted >= a->target && !p->killed) ||
                         a->stop || a->dead_writes >= 4000;

            if (!sim.end[e].alive || a->closed || sim_sending(e))
                continue;
            if (wrote && !a->fin && (!a->stop || sim_receiving(e) || a->sleeper) && chance(100))
                sim_app_shutdown(e);
            if (wrote && (a->rx_end || (a->stop && a->got == p->accepted && !sim_sending(!e))) &&
                chance(200)) {
                /* a thread in a blocking receive: close waits for nobody here */
                if (sim_receiving(e))
                    step(STEP_RECV, e);
                sim_app_close(e);
            }
        }
        /* Several rounds, because a round need not try everything. */
        if (sim_app_done(0) && sim_app_done(1) && !any && !sim_loop_busy() &&
            !sim_loop_next_timer() && ++idle > 30)
            break;
        if (any)
            idle = 0;
        else if (sim_loop_next_timer() > sim.now && chance(300))
            sim.now = sim_loop_next_timer();
        {
            uint64_t now = sim.end[0].app.got + sim.end[1].app.got + sim.end[0].app.accepted +
                           sim.end[1].app.accepted + sim.end[0].app.closed + sim.end[1].app.closed;

            rounds = now == before ? rounds : 0;
            before = now;
        }
        if (++rounds > 3000) {
            sim_fail(
                "not finished: end 0 sent %llu, end 1 has %llu; end 1 sent %llu, end 0 has "
                "%llu; tx %s %s, rx %s %s",
                (unsigned long long)sim.end[0].app.accepted, (unsigned long long)sim.end[1].app.got,
                (unsigned long long)sim.end[1].app.accepted, (unsigned long long)sim.end[0].app.got,
                fb_tx_state_name(sim.end[0].c->x->tx.state),
                fb_tx_state_name(sim.end[1].c->x->tx.state),
                fb_rx_state_name(sim.end[0].c->x->rx.state),
                fb_rx_state_name(sim.end[1].c->x->rx.state));
        }
    }
}

static void verify_end(void)
{
    for (int e = 0; e < 2 && !sim.failed; e++) {
        struct sim_app *a = &sim.end[e].app, *p = &sim.end[!e].app;

        if (!a->killed && !p->killed && !sim.rst_injected && !p->told && !a->told && !a->early &&
            a->got != p->accepted)
            sim_fail("end %d closed at %llu of %llu", e, (unsigned long long)a->got,
                     (unsigned long long)p->accepted);
        if (!a->killed && sim.end[e].c->s.refs != 0)
            sim_fail("end %d: %u references are left", e, sim.end[e].c->s.refs);
        if (!a->killed && sim.end[e].sock.refs != 0)
            sim_fail("end %d: the socket is still open", e);
    }
    for (unsigned i = 0; i < 2 * sim.rails; i++)
        if (!sim.rail[i].destroyed && sim.end[sim.rail[i].end].alive)
            sim_fail("end %d: a rail was not destroyed", sim.rail[i].end);
}

static void set_up(uint64_t seed)
{
    bool trace = sim.trace;
    struct fb_pub_addr at[2] = {{.family = AF_INET6, .port = 1}, {.family = AF_INET6, .port = 2}};

    memset(&sim, 0, sizeof(sim));
    sim.trace = trace;
    /* rdv.c remembers peers that do not answer: nobody may be known from another schedule. */
    memcpy(at[1].addr, &seed, sizeof(seed));
    sim.seed = sim.rng = seed;
    sim.no_watch = seed % 7 == 3 ? 1000 : 0;
    sim.bound = seed % 5 == 0 ? 1 + (uint32_t)(seed / 5 % 300) : 0;
    sim.now = 1000000000;
    sim.inside = -1;
    sim.outlives = chance(400);
    fb_io = sim_io;
    cfg.stream.mode = CFG_AUTO;
    cfg.stream.wire = sim.outlives ? CFG_WIRE_SHM : CFG_WIRE_VERBS;
    cfg.stream.board_never = false;
    cfg.stream.board_calls = 1 + rnd(6);
    cfg.stream.board_bytes = UINT64_MAX;
    budget_forget();
    tx_board_forget();
    rdv_forget();
    reach_forget();
    cfg.stream.idle_ns = chance(300) ? 2000ull << rnd(12) : 0;
    cfg.stream.stall_ns = chance(200) ? 50000000 : 0;
    cfg.stream.max_rails = chance(100) ? 1 : 1024; /* both ends are in one process */
    sim_tcp_new();
    sim_loop_new();
    sim_rdv_new();
    for (int i = 0; i < STEPS; i++)
        sim.weight[i] = 1 + rnd(4) * rnd(4) * 4;
    sim.refuse = chance(100) ? rnd(100) : 0;
    sim.peek = chance(300) ? rnd(500) : 20;
    sim.sizes = 1 + rnd(chance(300) ? 20 : 300);
    for (int e = 0; e < 2; e++) {
        struct fb_stream *s = fb_track(SIM_FD + e, e ? FB_ACCEPTED : FB_CONNECTED, 1);

        sim.end[e].alive = true;
        sim.end[e].c = conn_of(s);
        s->pub->local = at[e];
        s->pub->peer = at[!e];
        conn_set(sim.end[e].c, CF_SETTINGS);
        conn_known(sim.end[e].c);
        sim_app_new(e);
    }
}

static void tear_down(void)
{
    for (int e = 0; e < 2; e++) {
        struct fb_conn *c = sim.end[e].c;

        if (sim.end[e].app.sleeper)
            fb_sleeper_end(sim.end[e].app.sleeper);
        if (atomic_load(&c->s.refs)) {
            atomic_store(&c->s.refs, 1);
            fb_put(&c->s);
        }
    }
}

/* The random numbers of one step. */
static void reseed(uint64_t seed, unsigned i)
{
    sim.rng = seed;
    sim.rng = sim_next() + i;
}

bool sim_run(uint64_t seed, const uint8_t *without)
{
    unsigned n, events, when[6];
    enum event what[6];

    set_up(seed);
    n = sim.planned = 500 + rnd(chance(300) ? SIM_STEPS - 500 : 5000);
    events = rnd(7);
    for (unsigned i = 0; i < events; i++) {
        unsigned r = rnd(100);

        what[i] = r < 18   ? EV_LEAVE
                  : r < 40 ? EV_FAIL
                  : r < 46 ? EV_PIN
                  : r < 50 ? EV_PIN_WAIT
                  : r < 58 ? EV_ASKED
                  : r < 64 ? EV_SHUTDOWN
                  : r < 68 ? EV_CLOSE
                  : r < 82 ? EV_KILL
                  : r < 90 ? EV_RST
                           : EV_POLITE;
        when[i] = what[i] < EV_SHUTDOWN ? rnd(n) : n / 2 + rnd(n / 2);
    }
    for (unsigned i = 0; i < n && !sim.failed; i++) {
        if (without && without[i])
            continue;
        reseed(seed, i + 1);
        for (unsigned k = 0; k < events; k++)
            if (when[k] == i)
                event(what[k], (int)rnd(2));
        one_of_all();
        dooms();
        check();
    }
    reseed(seed, n + 1);
    finish();
    verify_end();
    tear_down();
    return !sim.failed;
}
