/*
 * verbs_mind_test.c - how often the progress thread tries what could not be posted: its timers, and
 * the kicks that it gives itself.
 */
#include "tests/shim/shim.h"

#include "rsock/loop.h"
#include "rsock/verbs_int.h"

#include <poll.h>

enum { MS = 1000000 };

struct vb_part *vb_parts;
struct vb_rail *_Atomic vb_rails[VB_MAX_RAILS];
unsigned vb_rails_high;

static void (*on_timer)(void *);
static void *timer_arg;
static uint64_t timer_ns;
static void (*on_kick)(void *, uint32_t);
static int kicked_fd;
static bool on_loop;
static unsigned tries;

struct rsk_timer *rsk_timer_add(uint64_t ns, void (*fn)(void *), void *arg)
{
    on_timer = fn;
    timer_arg = arg;
    timer_ns = ns;
    return (struct rsk_timer *)&on_timer;
}

void rsk_timer_cancel(struct rsk_timer *t)
{
    (void)t;
    on_timer = NULL;
}

struct rsk_watch *rsk_watch_fd(int fd, uint32_t events, bool anchor, void (*fn)(void *, uint32_t),
                               void *arg)
{
    (void)events, (void)arg;
    if (!anchor) {
        on_kick = fn;
        kicked_fd = fd;
    }
    return (struct rsk_watch *)&on_kick;
}

void rsk_unwatch(struct rsk_watch *w)
{
    (void)w;
}

bool rsk_loop_is_self(void)
{
    return on_loop;
}

int rsk_shard_drain(struct rsk_shard *s)
{
    (void)s;
    return 0;
}

bool vb_part_arm(struct vb_part *p)
{
    (void)p;
    return false;
}

void vb_tell(struct vb_rail *r, unsigned news)
{
    (void)r, (void)news;
}

/* Nothing can be posted, as long as there is no credit. */
static bool credit;
void vb_due(struct vb_rail *r, unsigned due)
{
    atomic_fetch_or(&r->due, due);
    if (!atomic_load(&r->due))
        return;
    if (!due)
        tries++;
    if (credit)
        atomic_store(&r->due, 0);
    else
        vb_mind_due(r->part, !atomic_load(&r->pausing));
}

void vb_rail_down(struct vb_rail *r)
{
    (void)r;
}

void vb_setup_step(struct vb_rail *r)
{
    (void)r;
}

void vb_probe_kicked(void)
{
}

/* As the loop would: for so long. How many timers have fired. */
static unsigned runs_for(uint64_t ns)
{
    void (*fires)(void *);
    unsigned n = 0;

    on_loop = true;
    for (;;) {
        if (poll(&(struct pollfd){.fd = kicked_fd, .events = POLLIN}, 1, 0) == 1) {
            vb_parts->timer_at = UINT64_MAX; /* for longer than this test may be held up */
            on_kick(NULL, POLLIN);
            continue;
        }
        if (timer_ns > ns || !on_timer)
            break;
        ns -= timer_ns;
        n++;
        fires = on_timer;
        on_timer = NULL;
        fires(timer_arg);
    }
    on_loop = false;
    return n;
}

TEST_CASE(verbs_mind, what_is_due_is_tried_less_and_less)
{
    static struct vb_rail r, other;
    static struct vb_part p;
    unsigned n;

    p.shard = (struct rsk_shard *)&p;
    p.channel = (struct ibv_comp_channel *)&p;
    vb_parts = &p;
    r.part = other.part = &p;
    r.state = other.state = VB_UP;
    vb_rails[0] = &r;
    vb_rails[1] = &other;
    vb_rails_high = 2;
    ASSERT_EQ_INT(vb_kick_open(), 0);
    vb_due(&r, VB_DUE_WAKE_MESSAGES); /* on an application's thread */
    n = runs_for(1000 * MS);
    EXPECT(n >= 1000 / 21 && n <= 1000 / 20 + 8);
    /* Which is not for another rail to suffer. */
    vb_due(&other, VB_DUE_WAKE_MESSAGES);
    tries = 0;
    (void)runs_for(2 * MS);
    EXPECT(tries >= 2);
    (void)runs_for(1000 * MS);
    /* There is credit: at the next look. And what is due after that is looked at soon. */
    credit = true;
    tries = 0;
    (void)runs_for(40 * MS);
    EXPECT(tries >= 2);
    (void)runs_for(100 * MS);
    EXPECT_EQ_U64(p.due_ns, 0);
    credit = false;
    vb_due(&r, VB_DUE_WAKE_MESSAGES);
    tries = 0;
    (void)runs_for(2 * MS);
    EXPECT(tries >= 1);
}
