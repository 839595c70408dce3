/*
 * budget.c - see budget.h. Counts rails and the memory of their rings, and looks at all of them
 * from time to time, for as long as there are any: who has moved nothing for as long as his
 * settings say leaves by himself. When somebody was refused, looks every second, for as long as who
 * was refused moves, and lets heat.c decide who has the rails.
 */
#include "ipoib_fallback/budget.h"

#include "config/log.h"
#include "config/rules.h"

#include "ipoib_fallback/heat.h"
#include "rsock/loop.h"

#define SECOND  1000000000ull
#define SETTLES 2000000u

/* Of the process; a rule's own streams are counted in their settings too. */
static struct cfg_use all;
static uint64_t shortest; /* the least idle time of a stream that counts, 0: none is watched */
static struct rsk_timer *ticking;
static uint64_t pressure_until, next_tick;
static bool calling; /* heat_room is on its way */

static void tick(void *unused);

static uint64_t pause_ns(void)
{
    if (fb_io.now() < pressure_until)
        return SECOND;
    return shortest ? shortest / 4 + 1 : 0;
}

/* The next look may have been meant for later. */
static void keep_ticking(void)
{
    uint64_t pause = pause_ns(), at = fb_io.now() + pause;

    if (!pause || (!all.rails && fb_io.now() >= pressure_until) || (ticking && next_tick <= at))
        return;
    if (ticking)
        rsk_timer_cancel(ticking);
    ticking = rsk_timer_add(pause, tick, NULL);
    next_tick = at;
}

static void press(void)
{
    pressure_until = fb_io.now() + 10 * SECOND;
    keep_ticking();
}

/* Neither direction is on its way. A silent one may never have boarded, and neither may where
 * nothing has been sent since there is a rail. */
static bool at_rest(const struct fb_conn *c)
{
    return c->x->rail && c->x->rdv == RDV_PROVED &&
           (c->x->tx.state == TX_R || c->x->tx.state == TX_T) &&
           (c->x->rx.state == RX_r || c->x->rx.state == RX_t);
}

uint64_t budget_idle_since(struct fb_conn *c)
{
    uint64_t moved = c->s.pub->tx + c->s.pub->rx;

    if (!at_rest(c) || conn_flag(c, CF_PINNED | CF_CLOSED))
        return 0;
    if (moved != c->x->moved || !c->x->idle_at) {
        c->x->moved = moved;
        c->x->idle_at = fb_io.now();
        return 0;
    }
    return c->x->idle_at;
}

/* Both halves, but only if nothing lies in the ring: that may have been shown to the application,
 * and would not be there for the time of the hand-over. Its traffic has to be worth a rail anew. */
bool budget_leave(struct fb_conn *c, int reason)
{
    bool quiet, unused;

    c->x->idle_at = 0;
    /* Somebody is at it. */
    if (!fb_trylock(&c->x->tx.lock))
        return false;
    if (!fb_trylock(&c->x->rx.lock)) {
        tx_unlock(c);
        return false;
    }
    quiet = c->fd >= 0 && at_rest(c) && (c->x->rx.state == RX_t || !rx_unread(c, c->fd));
    unused = !c->x->tx.on_rail && !c->x->rx.on_rail;
    if (quiet)
        rx_freeze(c, reason);
    rx_unlock(c);
    if (quiet && !unused) {
        c->x->end_reason = reason;
        /* At once, and not by leave_why, where a hand-over may just have noted why the receiving
         * half is to be frozen. */
        tx_leave(c, reason, true);
    }
    tx_unlock(c);
    if (!quiet)
        return false;
    log_info("stream %u: %s", c->s.slot, reason == RSN_IDLE ? "idle" : "others are hotter");
    if (unused)
        link_end(c, reason);
    return true;
}

/* A rail that fails is what may happen at any time, and it needs no answer. What lies in the ring
 * is read from it, as after any failure: nobody else has the stream. */
void budget_overdue(struct fb_conn *c)
{
    if (c->x->rail->failed || !fb_trylock(&c->x->rx.lock))
        return; /* it is on its end, or at the next look */
    if (!conn_flag(c, CF_PINNED | CF_CLOSED) && (c->x->rx.state == RX_r || c->x->rx.state == RX_q2))
        c->x->rx.frozen = false;
    rx_unlock(c);
    log_info("stream %u: the peer does not give its rail back", c->s.slot);
    link_end(c, RSN_BUDGET);
}

static void watch_idle(uint64_t idle)
{
    if (idle && (!shortest || idle < shortest))
        shortest = idle;
}

static void look(struct fb_conn *c, void *pressed)
{
    uint64_t now, since, idle, most;

    /* There may be very many that never wanted one. */
    if (!conn_flag(c, CF_ASKED | CF_LINKED))
        return;
    now = fb_io.now();
    if (pressed && heat_count(c))
        pressure_until = now + 10 * SECOND;
    since = budget_idle_since(c);
    /* The end that connected leaves first; if its library does not, the other one does. */
    idle = conn_config(c)->idle_ns;
    most = c->s.role == FB_CONNECTED ? idle : 2 * idle;
    if (c->x->budgeted)
        watch_idle(idle);
    if (since && idle && now - since >= most)
        (void)budget_leave(c, RSN_IDLE);
}

static void tick(void *unused)
{
    bool pressed = fb_io.now() < pressure_until;

    (void)unused;
    ticking = NULL;
    shortest = 0;
    if (pressed)
        heat_begin();
    conn_each(look, pressed ? &all : NULL);
    if (pressed)
        heat_end();
    keep_ticking();
}

static uint32_t expected(const struct cfg_stream *set)
{
    return set->ring ? 2 * set->ring : CFG_RAIL_EXPECTED;
}

/* For how many more rails of streams with these settings is there room in that budget? NULL:
 * the process's. */
static uint32_t room(const struct cfg_use *of, const struct cfg_stream *set)
{
    const struct cfg_use *use = of ? of : &all;
    const struct cfg_stream *most = of ? set : cfg_rules_base();
    uint64_t rails = most->max_rails > use->rails ? most->max_rails - use->rails : 0;
    uint64_t left = most->max_memory > use->memory ? most->max_memory - use->memory : 0;
    uint64_t fit = left / expected(set);

    return (uint32_t)(rails < fit ? rails : fit);
}

uint32_t budget_room(const struct cfg_use *of, struct fb_conn *c)
{
    return room(of, conn_config(c));
}

const struct cfg_use *budget_of(struct fb_conn *c)
{
    const struct cfg_stream *set = conn_config(c);

    return set->use && !room(set->use, set) ? set->use : NULL;
}

/* n more rails, of so many bytes more; both may be less than 0. */
static void count(struct fb_conn *c, int n, int64_t bytes)
{
    struct cfg_use *of[] = {&all, conn_config(c)->use};

    for (int i = 0; i < 2 && of[i]; i++) {
        of[i]->rails += (uint32_t)n;
        of[i]->memory += (uint64_t)bytes;
    }
    c->x->budgeted += (uint32_t)bytes;
}

bool budget_take(struct fb_conn *c)
{
    const struct cfg_stream *set = conn_config(c);
    uint32_t own, of_all;
    bool mine;

    if (c->x->budgeted)
        return true;
    own = set->use ? room(set->use, set) : UINT32_MAX;
    of_all = room(NULL, set);
    mine = own && of_all && heat_taken(c);
    c->x->refused_there = false;
    if (mine || ((!set->use || own > heat_reserved(set->use)) && of_all > heat_reserved(NULL))) {
        count(c, 1, expected(set));
        watch_idle(set->idle_ns);
        keep_ticking();
        return true;
    }
    heat_refused(c);
    press();
    return false;
}

void budget_refused(struct fb_conn *c)
{
    c->x->refused_there = true;
    press();
}

/* What is counted for it already is its own. */
static bool fits(const struct cfg_use *use, const struct cfg_stream *most, uint64_t has,
                 uint64_t bytes)
{
    uint64_t others = use->memory - has;

    return others < most->max_memory && bytes <= most->max_memory - others;
}

/* What one peer may choose, or he would have what is for all: two of our own largest rings, or a
 * 64th of the memory. */
static uint64_t most_for_one(struct fb_conn *c)
{
    uint64_t own = conn_config(c)->ring, share = cfg_rules_base()->max_memory / 64;

    own = 2 * (own > FB_BULK_RING ? own : FB_BULK_RING);
    return own > share ? own : share;
}

bool budget_fits(void *conn, size_t bytes, bool stranger)
{
    struct fb_conn *c = conn;
    const struct cfg_stream *set = conn_config(c);

    if (stranger && bytes > most_for_one(c)) {
        log_info("stream %u: its peer wants rings of %zu bytes, which is too much", c->s.slot,
                 bytes);
        return false;
    }
    if (!c->x->budgeted || bytes <= c->x->budgeted)
        return true;
    if (!fits(&all, cfg_rules_base(), c->x->budgeted, bytes) ||
        (set->use && !fits(set->use, set, c->x->budgeted, bytes)))
        return false;
    count(c, 0, (int64_t)bytes - c->x->budgeted);
    return true;
}

void budget_up(struct fb_conn *c, const struct rsk_rail *rail)
{
    if (!c->x->budgeted)
        return;
    count(c, 0, (int64_t)rail->tx_size + rail->rx_size - c->x->budgeted);
    c->x->idle_at = 0;
}

static void call_chosen(void *unused)
{
    (void)unused;
    calling = false;
    heat_room();
}

void budget_free(struct fb_conn *c)
{
    if (!c->x->budgeted)
        return;
    count(c, -1, -(int64_t)c->x->budgeted);
    if (!c->x->gave_up)
        return;
    c->x->gave_up = 0;
    heat_freed();
    /* Not within the caller, who is not through with this one; and the other end has to give
     * its own back. */
    if (!calling)
        calling = rsk_timer_add(SETTLES, call_chosen, NULL) != NULL;
}

void budget_forget(void)
{
    all = (struct cfg_use){0};
    shortest = 0;
    ticking = NULL;
    calling = false;
    pressure_until = 0;
    heat_forget();
}
