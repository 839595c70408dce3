/* quota_test.c - waits spin only briefly where a CPU quota holds the process back:
 * ipoib_fallback/quota.c over a simulated group. */
#include "tests/shim/shim.h"

#include "config/cgroup.h"
#include "config/log.h"
#include "ipoib_fallback/fb.h"
#include "ipoib_fallback/io.h"
#include "ipoib_fallback/quota.h"
#include "rsock/loop.h"
#include "rsock/own.h"

#include <errno.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#define SECOND 1000000000ull

enum { BRIEF = 20000, MOST = 70000 };

static uint64_t clock_ns, held;
static unsigned looks;
static bool filtered, loop_there, timers_there;

/* The progress thread's one job and one timer. */
static struct rsk_job *posted;
static void (*timer)(void *);
static uint64_t timer_at;

static uint64_t now(void)
{
    return clock_ns;
}

struct fb_io fb_io = {.now = now};

_Atomic int cfg_log_level = CFG_LOG_INFO;
static char said[200];

void cfg_log_write(int level, const char *fmt, ...)
{
    va_list args;

    EXPECT_EQ_INT(level, CFG_LOG_INFO);
    va_start(args, fmt);
    vsnprintf(said, sizeof(said), fmt, args);
    va_end(args);
}

bool fb_filtered(void)
{
    return filtered;
}

uint64_t cfg_cgroup_throttled(struct cfg_cgroups *c, const char *own, const char *root)
{
    EXPECT_STREQ(own, "/proc/self/cgroup");
    EXPECT_STREQ(root, "/sys/fs/cgroup");
    if (looks++ == 0) { /* it is none of the program's numbers, and it is known to be none */
        int fd = c->open("/dev/null");

        EXPECT(fd >= 512 && rsk_own_has(fd));
        c->close(fd);
        EXPECT(!rsk_own_has(fd));
        EXPECT(c->open("/nowhere") == -ENOENT);
    }
    return held;
}

int rsk_loop_post_job(struct rsk_job *j)
{
    if (!loop_there)
        return -ESRCH;
    if (atomic_exchange(&j->posted, true))
        return 0;
    EXPECT(posted == NULL);
    posted = j;
    return 0;
}

struct rsk_timer *rsk_timer_add(uint64_t ns, void (*fn)(void *), void *arg)
{
    EXPECT(timer == NULL);
    EXPECT(arg == NULL);
    if (!timers_there)
        return NULL;
    timer = fn;
    timer_at = clock_ns + ns;
    return (struct rsk_timer *)&timer;
}

static void turn(void)
{
    struct rsk_job *j = posted;
    void (*fn)(void *) = timer;

    posted = NULL;
    if (j) {
        atomic_store(&j->posted, false);
        j->fn(j->arg);
    }
    if (fn && timer_at <= clock_ns) {
        timer = NULL;
        fn(NULL);
    }
}

static uint32_t allowed(void)
{
    return quota_most(MOST, BRIEF);
}

/* For so long waits want to spin for long, each ms; the group is held back for a part in a thousand
 * of each ms in which they do. True: they may, at the end. */
static bool spins(uint64_t ns, uint64_t part)
{
    uint64_t end = clock_ns + ns;
    uint32_t most = 0;

    while (clock_ns < end) {
        clock_ns += 1000000;
        most = allowed();
        EXPECT(most == BRIEF || most == MOST);
        if (most == MOST) {
            quota_used();
            held += 1000 * part;
        }
        turn();
    }
    return most == MOST;
}

static void passes(uint64_t ns)
{
    for (uint64_t end = clock_ns + ns; clock_ns < end; turn())
        clock_ns += 1000000;
}

static void begin(uint64_t already)
{
    quota_forget();
    looks = 0;
    clock_ns = 7 * SECOND;
    held = already;
    looks = 0;
    said[0] = '\0';
    filtered = false;
    loop_there = timers_there = true;
    posted = NULL;
    timer = NULL;
}

TEST_CASE(quota, none)
{
    begin(UINT64_MAX);
    while (clock_ns < 60 * SECOND) {
        clock_ns += 1000000;
        EXPECT_EQ_INT(allowed(), MOST);
        quota_used();
        turn();
    }
    EXPECT(looks >= 10 && looks <= 12);
}

TEST_CASE(quota, enough)
{
    begin(12345);
    EXPECT(spins(60 * SECOND, 0));
    EXPECT(spins(60 * SECOND, 45)); /* hardly ever */
}

TEST_CASE(quota, of_before_does_not_count)
{
    begin(1000 * SECOND);
    EXPECT(spins(10 * SECOND, 0));
    passes(10 * SECOND);
    held += 10 * SECOND; /* by what else it does */
    EXPECT(spins(10 * SECOND, 0));
}

TEST_CASE(quota, used_up)
{
    uint64_t since;

    begin(0);
    EXPECT(spins(10 * SECOND, 0));
    EXPECT_STREQ(said, "");
    EXPECT(!spins(4 * FB_QUOTA_LOOK, 500));
    EXPECT(strstr(said, " for 10 s"));
    EXPECT(!spins(FB_QUOTA_REST - SECOND, 500));
    /* Then it is tried for as long as a look takes, each time after twice as long. */
    for (uint64_t rest = 2 * FB_QUOTA_REST; rest <= FB_QUOTA_MOST; rest *= 2) {
        for (since = clock_ns; allowed() == BRIEF; turn())
            clock_ns += 1000000;
        EXPECT(clock_ns - since < rest / 2 + 2 * SECOND);
        EXPECT(!spins(4 * FB_QUOTA_LOOK, 500));
        EXPECT(!spins(rest - SECOND, 500));
    }
    EXPECT(strstr(said, " for 320 s"));
    passes(SECOND);
    EXPECT(!spins(4 * FB_QUOTA_LOOK, 500));
    EXPECT(!spins(FB_QUOTA_MOST - 2 * SECOND, 500));
    passes(2 * SECOND);
    EXPECT(spins(FB_QUOTA_MOST + SECOND, 0)); /* it has been given more */
    EXPECT(!spins(4 * FB_QUOTA_LOOK, 500));
    EXPECT(!spins(FB_QUOTA_REST - SECOND, 0));
    passes(SECOND);
    EXPECT_EQ_INT(allowed(), MOST);
}

/* It needs all that it has, whether waits spin or not. */
TEST_CASE(quota, held_back_in_a_rest)
{
    uint64_t since;

    begin(0);
    for (int i = 0; i < 3; i++) {
        EXPECT(!spins(2 * SECOND, 500));
        for (since = clock_ns; allowed() == BRIEF; turn()) {
            clock_ns += 1000000;
            held += 900000;
        }
        EXPECT(clock_ns - since <= FB_QUOTA_REST);
    }
    EXPECT(spins(5 * SECOND, 0));
}

/* A moment every now and then is nothing. */
TEST_CASE(quota, now_and_then)
{
    begin(0);
    for (int i = 0; i < 60; i++) {
        EXPECT(spins(5 * SECOND, 0));
        held += 100000000;
    }
    EXPECT(spins(SECOND, 0));
}

TEST_CASE(quota, nobody_spins)
{
    begin(0);
    EXPECT(timer == NULL);
    EXPECT(spins(SECOND, 0));
    passes(3 * FB_QUOTA_LOOK);
    EXPECT(timer == NULL);
    looks = 0;
    passes(60 * SECOND);
    EXPECT_EQ_INT(looks, 0);
    /* What is allowed is not used yet. */
    EXPECT_EQ_INT(allowed(), MOST);
    EXPECT(posted == NULL);
    EXPECT_EQ_INT(quota_most(0, BRIEF), 0);
    EXPECT_EQ_INT(quota_most(BRIEF, BRIEF), BRIEF);
    EXPECT(posted == NULL);
    EXPECT(spins(SECOND, 0));
    EXPECT(looks > 0);
}

TEST_CASE(quota, set_later_or_taken_away)
{
    begin(UINT64_MAX);
    EXPECT(spins(20 * SECOND, 0));
    held = 0;
    EXPECT(spins(FB_QUOTA_RARELY + SECOND, 0));
    EXPECT(!spins(SECOND, 500));
    held = UINT64_MAX; /* another group */
    passes(FB_QUOTA_REST);
    while (clock_ns % (100 * SECOND)) {
        clock_ns += 1000000;
        EXPECT_EQ_INT(allowed(), MOST);
        quota_used();
        turn();
    }
    held = 50 * SECOND;
    EXPECT(spins(20 * SECOND, 0));
    held = 5; /* and one that has been held back for less */
    EXPECT(spins(SECOND, 0));
}

TEST_CASE(quota, filter)
{
    begin(0);
    filtered = true;
    EXPECT(spins(SECOND, 500));
    EXPECT_EQ_INT(looks, 0);
    EXPECT(timer == NULL);
    begin(0);
    EXPECT(!spins(SECOND, 500));
    filtered = true;
    passes(FB_QUOTA_REST);
    EXPECT_EQ_INT(allowed(), BRIEF); /* nobody sees whether it became better */
}

TEST_CASE(quota, nobody_looks)
{
    begin(0);
    loop_there = false;
    EXPECT(spins(SECOND, 500));
    loop_there = true;
    EXPECT(!spins(SECOND, 500));
    begin(0);
    timers_there = false;
    EXPECT(spins(SECOND, 0));
    EXPECT(looks > 0);
}

TEST_CASE(quota, child)
{
    begin(0);
    EXPECT(!spins(SECOND, 500));
    quota_forget();
    posted = NULL;
    timer = NULL;
    EXPECT_EQ_INT(allowed(), MOST);
    quota_used();
    EXPECT(posted != NULL);
    /* Forked before the progress thread has taken it. */
    quota_forget();
    posted = NULL;
    quota_used();
    EXPECT(posted != NULL);
}
