/*
 * sim_loop.c - a progress thread for each end: posted jobs, timers of the simulated
 * clock, edges of the anchor; and the file that stat reads, as plain memory.
 */
#include "tests/sim/sim.h"

#include "config/log.h"
#include "ipoib_fallback/heir.h"
#include "ipoib_fallback/pubfile.h"
#include "ipoib_fallback/processors.h"
#include "ipoib_fallback/quota.h"
#include "ipoib_fallback/tap.h"
#include "rsock/loop.h"
#include "rsock/own.h"
#include "rsock/shard.h"

#include <string.h>

static struct fb_pub pubs[256];
static struct fb_pub_rail shown[256];

bool fb_pub_grow(uint32_t n)
{
    return n <= sizeof(pubs) / sizeof(pubs[0]);
}

struct fb_pub *fb_pub_slot(uint32_t slot)
{
    return &pubs[slot];
}

struct fb_pub_rail *fb_pub_rail(uint32_t slot)
{
    return &shown[slot];
}

/* One process: nothing is lent. */
_Atomic uint32_t heir_forks, heir_over;
_Atomic unsigned heir_blind;

bool heir_take(struct fb_conn *c)
{
    (void)c;
    return true;
}

void heir_settled(struct fb_conn *c)
{
    (void)c;
}

bool heir_linked(struct fb_conn *c)
{
    (void)c;
    return true;
}

void heir_front_over(struct fb_conn *c)
{
    (void)c;
}

bool heir_elsewhere(struct fb_conn *c)
{
    (void)c;
    return false;
}

bool heir_held(struct fb_conn *c)
{
    return conn_flag(c, CF_SHARED);
}

void heir_let_go(struct fb_conn *c)
{
    (void)c;
}

void given_closed(struct fb_conn *c)
{
    (void)c;
}

void heir_disown(struct fb_conn *c)
{
    (void)c;
}

void heir_serve(void)
{
}

/* Nobody taps. */
void tap_ask(struct fb_conn *c)
{
    (void)c;
}

void tap_gone(struct fb_conn *c)
{
    (void)c;
}

void tap_forget(void)
{
}

void heir_forget(void)
{
}

void given_over(struct fb_conn *c)
{
    (void)c;
}

void given_forget(void)
{
}

void heir_child_forget(void)
{
}

void fb_pub_closed(const struct fb_pub *p, const struct fb_pub_rail *r)
{
    (void)p;
    (void)r;
}

void fb_pub_remove(void)
{
}

void fb_pub_forget(void)
{
}

bool hold_on(void)
{
    return false;
}

int hold_start(void)
{
    return 0;
}

const char *hold_words(int err, char number[static CFG_ERRNO_WORDS])
{
    return cfg_errno_words(-err, number);
}

void fb_alone(void)
{
}

uint64_t fb_sleep_most(void)
{
    return UINT64_MAX;
}

bool fb_filtered(void)
{
    return false;
}

int hold_for_good(void)
{
    return 0;
}

void hold_forget(void)
{
}

/* The machine that the simulation runs on may have one processor, or a quota. */
_Atomic bool fb_one_processor;

void processors_look(void)
{
}

_Atomic uint8_t fb_quota_state = QUOTA_USED;

void quota_first(void)
{
}

void quota_forget(void)
{
}

void crowd_look(struct fb_crowd *c, uint64_t at)
{
    (void)c;
    (void)at;
}

struct rsk_shard *rsk_shard_get(struct rsk_shard *s)
{
    return s;
}

void rsk_shard_put(struct rsk_shard *s)
{
    (void)s;
}

struct rsk_shard *rsk_shard_common(void)
{
    return NULL;
}

void rsk_own_enter(void)
{
}

void rsk_own_leave(void)
{
}

int rsk_own_opened(int fd)
{
    return fd;
}

bool rsk_own_has(int fd)
{
    (void)fd;
    return false;
}

void rsk_own_close(int fd)
{
    (void)fd;
}

int rsk_loop_start(bool use_uring)
{
    (void)use_uring;
    return 0;
}

bool rsk_loop_running(void)
{
    return true;
}

bool rsk_loop_is_self(void)
{
    return sim.on_loop;
}

int sim_end_of(const void *arg)
{
    const struct sim_rail *r = arg;

    /* Nobody's: the budget looks at both, and reach.c counts ports. */
    if ((uintptr_t)arg <= UINT16_MAX || arg == sim.end[0].c)
        return 0;
    if (arg == sim.end[1].c)
        return 1;
    if (r >= sim.rail && r < sim.rail + 2 * SIM_RAILS)
        return r->end;
    sim_fail("a callback for nobody");
    return 0;
}

static int post(void (*fn)(void *), void *arg, struct rsk_job *own)
{
    struct sim_end *e = &sim.end[sim_end_of(arg)];

    if (e->jobs - e->job_at >= 64) {
        sim_fail("64 jobs are waiting");
        return -ENOMEM;
    }
    e->job[e->jobs++ % 64] = (struct sim_job){fn, arg, own};
    return 0;
}

int rsk_loop_post(void (*fn)(void *), void *arg)
{
    return post(fn, arg, NULL);
}

int rsk_loop_post_job(struct rsk_job *j)
{
    return atomic_exchange(&j->posted, true) ? 0 : post(j->fn, j->arg, j);
}

bool sim_loop_job(int end)
{
    struct sim_end *e = &sim.end[end];
    struct sim_job j;

    if (e->job_at == e->jobs || !e->alive)
        return false;
    j = e->job[e->job_at++ % 64];
    if (j.own)
        atomic_store(&j.own->posted, false);
    j.fn(j.arg);
    return true;
}

struct rsk_timer *rsk_timer_add(uint64_t ns, void (*fn)(void *), void *arg)
{
    for (int i = 0; i < 32; i++)
        if (!sim.timer[i].used) {
            sim.timer[i] = (struct rsk_timer){true, sim_end_of(arg), sim.now + ns, {fn, arg, NULL}};
            return &sim.timer[i];
        }
    sim_fail("too many timers");
    return NULL;
}

void rsk_timer_cancel(struct rsk_timer *t)
{
    if (!t->used)
        sim_fail("a timer is cancelled that has fired");
    t->used = false;
}

static struct rsk_timer *first_timer(int end)
{
    struct rsk_timer *first = NULL;

    for (int i = 0; i < 32; i++) {
        struct rsk_timer *t = &sim.timer[i];

        if (t->used && sim.end[t->end].alive && (end < 0 || t->end == end) &&
            (!first || t->at < first->at))
            first = t;
    }
    return first;
}

bool sim_loop_timer(int end)
{
    struct rsk_timer *t = first_timer(end);

    if (!t || t->at > sim.now)
        return false;
    t->used = false;
    t->job.fn(t->job.arg);
    return true;
}

bool sim_loop_busy(void)
{
    for (int e = 0; e < 2; e++)
        if (sim.end[e].alive && sim.end[e].jobs != sim.end[e].job_at)
            return true;
    return sim_wire_busy();
}

uint64_t sim_loop_next_timer(void)
{
    struct rsk_timer *t = first_timer(-1);

    return t ? t->at : 0;
}

struct rsk_watch *rsk_watch_fd(int fd, uint32_t events, bool anchor, void (*fn)(void *, uint32_t),
                               void *arg)
{
    int end = fd % SIM_FD;
    struct rsk_watch *w = &sim.watch[end];

    if (w->used)
        sim_fail("end %d: the anchor is watched twice", end);
    (void)anchor;
    if (sim.no_watch && chance(sim.no_watch))
        return NULL;
    *w = (struct rsk_watch){end, true, true, false, events, fn, arg};
    sim.end[end].sock.watch = w;
    return w;
}

void rsk_unwatch(struct rsk_watch *w)
{
    if (!w)
        return;
    w->used = false;
    sim.end[w->end].sock.watch = NULL;
}

void sim_edge(int end)
{
    sim.watch[end].edge = true;
}

/* What epoll reports for an edge-triggered registration: all that holds, once for each edge. */
bool sim_loop_watch(int end)
{
    struct rsk_watch *w = &sim.watch[end];
    short bits;

    if (!w->used || !w->edge || w->dropped || !sim.end[end].alive)
        return false;
    w->edge = false;
    bits = sim_tcp_poll(SIM_FD + end, (short)(w->events & 0x7fff));
    if (!bits)
        return false;
    w->fn(w->arg, (uint32_t)bits);
    return true;
}

void sim_loop_new(void)
{
    memset(pubs, 0, sizeof(pubs));
    memset(shown, 0, sizeof(shown));
}

void rsk_watch_drop(struct rsk_watch *w)
{
    w->dropped = true;
}
