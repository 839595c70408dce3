/*
 * quota.c - see quota.h. The first wait that has spun for long wakes the progress thread; that
 * looks from then on, and no more once nobody has done so between two looks. So where nothing
 * happens there is no timer.
 *
 * Locks: none. The state is changed by any thread from ASLEEP or UNUSED to USED, by the progress
 * thread otherwise.
 */
#include "ipoib_fallback/quota.h"

#include "config/cgroup.h"
#include "config/log.h"
#include "ipoib_fallback/stream.h"
#include "rsock/loop.h"
#include "rsock/own.h"
#include "rsock/sys.h"

#include <fcntl.h>

_Atomic uint8_t fb_quota_state;

static struct fb_quota quota;
static bool ticking;

static void tick(void *unused);

static void go_on(uint64_t ns)
{
    ticking = rsk_timer_add(ns, tick, NULL) != NULL;
    if (!ticking && quota.rest.until) { /* nobody would end the rest */
        quota = (struct fb_quota){0};
        atomic_store(&fb_quota_state, QUOTA_USED);
    }
}

/* The program's numbers are its own. */
static int open_hidden(const char *name)
{
    return rsk_own_fd(sys_open(name, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY, 0));
}

static void look(void)
{
    static struct cfg_cgroups groups = {.open = open_hidden, .close = rsk_own_close};
    uint64_t held, pause;
    bool rested = quota.rest.until != 0;

    if (fb_filtered()) { /* no files are opened any more; what was known holds */
        quota = (struct fb_quota){0};
        atomic_store(&fb_quota_state, rested ? QUOTA_RESTS : QUOTA_USED);
        return;
    }
    held = cfg_cgroup_throttled(&groups, CFG_CGROUP_OWN, CFG_CGROUP_ROOT);
    pause = fb_quota_look(&quota, fb_io.now(), held);
    if (quota.rest.until && !rested)
        log_info("the control group's CPU quota is used up: waits spin only briefly for %u s",
                 (unsigned)(pause / 1000000000u));
    atomic_store(&fb_quota_state, quota.rest.until ? QUOTA_RESTS : QUOTA_UNUSED);
    go_on(pause);
}

static void tick(void *unused)
{
    uint8_t state = QUOTA_UNUSED;

    (void)unused;
    ticking = false;
    if (atomic_compare_exchange_strong(&fb_quota_state, &state, QUOTA_ASLEEP))
        quota.at = 0; /* who spins next finds no look of before */
    else
        look();
}

static void begin(void *unused)
{
    (void)unused;
    if (!ticking)
        look();
}

static struct rsk_job job = {.fn = begin};

void quota_first(void)
{
    uint8_t state = atomic_load_explicit(&fb_quota_state, memory_order_relaxed);

    if (state == QUOTA_RESTS || state == QUOTA_USED ||
        !atomic_compare_exchange_strong(&fb_quota_state, &state, QUOTA_USED))
        return;
    if (state == QUOTA_ASLEEP && rsk_loop_post_job(&job) < 0)
        atomic_store(&fb_quota_state, QUOTA_ASLEEP); /* there is no progress thread */
}

void quota_forget(void)
{
    quota = (struct fb_quota){0};
    ticking = false;
    atomic_store(&job.posted, false);
    atomic_store(&fb_quota_state, QUOTA_ASLEEP);
}
