/*
 * budget.c - see budget.h. Counts rails and the memory of their rings, and looks at all of them from
 * time to time, for as long as there are any: who has moved nothing for as long as his settings say
 * leaves by himself. When somebody was refused, looks every second for a while, and lets leave who has been
 * idle for that long: a boarding costs more than it brings to whoever is idle for less.
 */
#include "ipoib_fallback/budget.h"

#include "config/log.h"
#include "config/rules.h"

#include "rsock/loop.h"

#define SECOND 1000000000ull
/* A rail that is asked for: its size is not known yet. */
#define EXPECTED (512u * 1024)

/* Of the process; a rule's own streams are counted in their settings too. */
static struct cfg_use all;
static uint64_t shortest; /* the least idle time of a stream that counts, 0: none is watched */
static bool ticking;
static uint64_t pressure_until;

static void tick(void *unused);

static uint64_t pause_ns(void)
{
    if (fb_io.now() < pressure_until)
        return SECOND;
    return shortest ? shortest / 4 + 1 : 0;
}

static void keep_ticking(void)
{
    uint64_t pause = pause_ns();

    if (!ticking && all.rails && pause)
        ticking = rsk_timer_add(pause, tick, NULL) != NULL;
}

/* Since when a stream on a rail has moved nothing; 0: it is none, or has just moved. */
static uint64_t idle_since(struct fb_conn *c)
{
    uint64_t moved = conn_rail_tx(c) + conn_rail_rx(c);

    if (!c->x->rail || c->x->tx.state != TX_R || c->x->rx.state != RX_r ||
        conn_flag(c, CF_PINNED | CF_CLOSED))
        return 0;
    if (moved != c->x->moved || !c->x->idle_at) {
        c->x->moved = moved;
        c->x->idle_at = fb_io.now();
        return 0;
    }
    return c->x->idle_at;
}

/* Both halves, but only if nothing lies in the ring: that may have been shown to the application, and
 * would not be there for the time of the hand-over. Its traffic has to be worth a rail anew. */
static void leave_idle(struct fb_conn *c)
{
    bool quiet;

    c->x->idle_at = 0;
    fb_lock(&c->x->rx.lock);
    quiet = c->x->rx.state == RX_r && c->fd >= 0 && !rx_unread(c, c->fd);
    if (quiet)
        rx_freeze(c, RSN_IDLE);
    rx_unlock(c);
    if (!quiet)
        return;
    log_info("stream %u: idle", c->slot);
    c->x->end_reason = RSN_IDLE;
    fb_lock(&c->x->tx.lock);
    tx_leave(c, RSN_IDLE, true);
    tx_unlock(c);
    conn_serve(c);
}

static void watch_idle(uint64_t idle)
{
    if (idle && (!shortest || idle < shortest))
        shortest = idle;
}

static void look(struct fb_conn *c, void *arg)
{
    uint64_t now, since, idle, most;

    (void)arg;
    /* There may be very many that never wanted one. */
    if (!conn_flag(c, CF_ASKED | CF_LINKED))
        return;
    now = fb_io.now();
    since = idle_since(c);
    /* The end that connected leaves first; if its library does not, the other one does. */
    idle = conn_config(c)->idle_ns;
    most = c->s.role == FB_CONNECTED ? idle : 2 * idle;
    if (c->x->budgeted)
        watch_idle(idle);
    if (since && idle && now - since >= most)
        leave_idle(c);
}

static void tick(void *unused)
{
    (void)unused;
    ticking = false;
    shortest = 0;
    conn_each(look, NULL);
    keep_ticking();
}

struct victim {
    struct fb_conn *c; /* referenced */
    uint64_t since;
    const struct cfg_use *of; /* whose streams may be; NULL: all */
};

static void idler(struct fb_conn *c, void *arg)
{
    struct victim *v = arg;
    uint64_t since = idle_since(c);

    if (v->of && conn_config(c)->use != v->of)
        return;
    if (!since || fb_io.now() - since < SECOND || (v->c && v->since <= since))
        return;
    if (v->c)
        fb_put(&v->c->s);
    fb_get(&c->s);
    v->c = c;
    v->since = since;
}

static bool room(const struct cfg_use *use, const struct cfg_stream *most)
{
    return use->rails < most->max_rails && use->memory + EXPECTED <= most->max_memory;
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
    bool own = !set->use || room(set->use, set);
    struct victim v = {.of = own ? NULL : set->use};

    if (c->x->budgeted)
        return true;
    if (own && room(&all, cfg_rules_base())) {
        count(c, 1, EXPECTED);
        watch_idle(set->idle_ns);
        keep_ticking();
        return true;
    }
    pressure_until = fb_io.now() + 10 * SECOND;
    conn_each(idler, &v);
    if (v.c) {
        leave_idle(v.c);
        fb_put(&v.c->s);
    }
    keep_ticking();
    return false;
}

void budget_up(struct fb_conn *c, const struct rsk_rail *rail)
{
    if (!c->x->budgeted)
        return;
    count(c, 0, (int64_t)rail->tx_size + rail->rx_size - c->x->budgeted);
    c->x->idle_at = 0;
}

void budget_free(struct fb_conn *c)
{
    if (!c->x->budgeted)
        return;
    count(c, -1, -(int64_t)c->x->budgeted);
}

void budget_forget(void)
{
    all = (struct cfg_use){0};
    shortest = 0;
    ticking = false;
    pressure_until = 0;
}
