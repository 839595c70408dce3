/*
 * verbs_cq_order_test.c - armings as in verbs_cq_test.c, where several threads sleep, drain and
 * arm: at each call of a provider's any of the others may come in between. When all sleep, and
 * nothing is on its way, nothing is left in a queue.
 */
#include "tests/shim/shim.h"
#include "tests/unit/fake_adapter.h"

#include <string.h>

enum state { AWAKE, ASLEEP, DRAINS /* as soon as whoever drains lets it */ };
enum { THREADS = 2, STEPS = 80 };

static enum state app[THREADS], futex[CQS]; /* of one instance; of a CQ each */
static bool instance_edge, loop_edge, draining;
static unsigned depth;

static void fire_all(void)
{
    instance_edge = loop_edge = true;
}

static bool try_drain(bool by_loop)
{
    bool was = self;

    if (draining)
        return false;
    draining = true;
    self = by_loop;
    drain();
    self = was;
    draining = false;
    return true;
}

static void app_sleeps(unsigned t)
{
    bool news, was = self;

    atomic_fetch_add(&armed, 1);
    self = false;
    news = vb_shard_arm(&part.base);
    self = was;
    app[t] = news && !try_drain(false) ? DRAINS : ASLEEP;
}

/* One of them gets the edge; who leaves the wait arms for the others. */
static void app_wakes(unsigned t)
{
    if (instance_edge)
        instance_edge = false;
    app[t] = AWAKE;
    atomic_fetch_sub(&armed, 1);
    (void)try_drain(false);
    if (dice(2))
        (void)try_drain(false);
    app_sleeps(t);
    if (app[t] == ASLEEP && dice(3) == 0) {
        app[t] = AWAKE;
        atomic_fetch_sub(&armed, 1);
    }
}

static void futex_sleeps(unsigned k)
{
    if (futex[k] == AWAKE)
        atomic_fetch_add(&part.sleepers, 1);
    for (;;) {
        futex[k] = DRAINS;
        vb_arm_cq(&part, &cqs[k]);
        if (!vb_part_peek(&part)) {
            futex[k] = ASLEEP;
            return;
        }
        if (!try_drain(false))
            return;
    }
}

static void loop_wakes(void)
{
    loop_edge = false;
    if (atomic_load(&part.sleepers) && !try_drain(true))
        loop_edge = true;
}

static void step(bool locked)
{
    unsigned which = dice(locked ? 3 : 9), t = dice(THREADS), k = dice(n_cqs);

    switch (which) {
    case 0:
    case 1:
        complete(k);
        break;
    case 2:
        interrupt();
        break;
    case 3:
        if (app[t] == AWAKE)
            app_sleeps(t);
        break;
    case 4:
        if (app[t] == ASLEEP && (instance_edge || dice(4) == 0))
            app_wakes(t);
        break;
    case 5:
        if (app[t] == AWAKE)
            (void)try_drain(false);
        break;
    case 6:
        if (futex[k] == AWAKE)
            futex_sleeps(k);
        break;
    case 7:
        if (futex[k] == ASLEEP) {
            futex[k] = AWAKE;
            atomic_fetch_sub(&part.sleepers, 1);
        }
        break;
    default:
        if (loop_edge)
            loop_wakes();
    }
}

static void others(bool locked)
{
    if (depth >= 3 || dice(3))
        return;
    depth++;
    step(locked);
    depth--;
}

/* Who could not drain does so now; true: somebody did. */
static bool finish(void)
{
    bool any = false;

    for (unsigned t = 0; t < THREADS; t++)
        if (app[t] == DRAINS) {
            any = true;
            (void)try_drain(false);
            app[t] = ASLEEP;
        }
    for (unsigned k = 0; k < n_cqs; k++)
        if (futex[k] == DRAINS) {
            any = true;
            futex_sleeps(k);
        }
    return any;
}

/* Everybody who is woken does what he does, nothing else comes. */
static void until_quiet(void)
{
    for (unsigned i = 0; i < 100; i++) {
        bool any = finish();

        interrupt();
        for (unsigned t = 0; t < THREADS && instance_edge; t++)
            if (app[t] == ASLEEP) {
                app_wakes(t);
                any = true;
            }
        if (loop_edge) {
            loop_wakes();
            any = true;
        }
        for (unsigned t = 0; t < THREADS; t++)
            if (app[t] == AWAKE) {
                app_sleeps(t);
                any = true;
            }
        if (!any)
            return;
    }
    EXPECT(!"it comes to rest");
}

/* They all sleep. */
static bool nothing_left(void)
{
    for (unsigned i = 0; i < n_cqs; i++)
        if (!EXPECT_EQ_INT(left_in(i), 0) || !EXPECT(cqs[i].stashed <= 0))
            return false;
    return true;
}

static bool one_order(uint64_t seed)
{
    dice_state = seed;
    memset(app, 0, sizeof(app));
    memset(futex, 0, sizeof(futex));
    instance_edge = loop_edge = draining = false;
    depth = 0;
    for (unsigned i = 0; i < STEPS; i++) {
        between = others;
        step(false);
        (void)finish();
    }
    between = NULL;
    until_quiet();
    if (!nothing_left())
        return false;
    complete(dice(n_cqs));
    until_quiet();
    return nothing_left() && EXPECT_EQ_INT(ignored, 0);
}

TEST_CASE(verbs_cq_order, any)
{
    for (unsigned run = 0; run < 8000; run++) {
        unsigned kind = run % KINDS, n = 1 + run / KINDS % CQS;

        begin((enum kind)kind, n);
        interrupted = fire_all;
        if (!one_order(test_seed() + run)) {
            shim_fail(__FILE__, __LINE__, "adapter %u, %u queues, run %u", kind, n, run);
            return;
        }
    }
}
