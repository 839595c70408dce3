/*
 * fake_adapter.c - see fake_adapter.h.
 */
#include "tests/unit/fake_adapter.h"

#include <errno.h>
#include <pthread.h>
#include <string.h>

#include "config/log.h"
#include "rsock/section.h"
#include "tests/unit/verbs_no_limit.h"

/* ---- what verbs_cq.c calls */

_Thread_local struct rsk_sig rsk_sig;
_Atomic bool rsk_sections_on;
_Atomic int cfg_log_level;
void (*cfg_log_around)(bool begins);
struct vb_dl vdl;
struct vb_rail *_Atomic vb_rails[VB_MAX_RAILS];
unsigned vb_rails_high;
_Atomic uint32_t armed;
_Thread_local bool self;

void rsk_cancel_later(void)
{
}

void cfg_log_write(int level, const char *fmt, ...)
{
    (void)level, (void)fmt;
}

void vb_rail_fail(struct vb_rail *r, int reason)
{
    (void)r, (void)reason;
}

int vb_post_receives(struct vb_rail *r, unsigned n)
{
    (void)r, (void)n;
    return 0;
}

int vb_receive(struct vb_rail *r, uint32_t imm)
{
    (void)r, (void)imm;
    return 0;
}

void vb_due(struct vb_rail *r, unsigned due)
{
    (void)r, (void)due;
}

void vb_kick(void)
{
}

void vb_mind_start(struct vb_part *p)
{
    (void)p;
}

bool rsk_loop_is_self(void)
{
    return self;
}

uint32_t rsk_shard_armed(const struct rsk_shard *s)
{
    (void)s;
    return atomic_load(&armed);
}

/* ---- the adapter */

static struct hw {
    struct ibv_cq cq;
    unsigned there; /* completions */
    bool fires;     /* with the next one */
    unsigned on_the_way,
        read; /* events: until the interrupt, and until somebody reads the channel */
    uint32_t number, seen_number;
    bool is_armed, skip_arm;
} hw[CQS];

static pthread_mutex_t hw_lock = PTHREAD_MUTEX_INITIALIZER;
static enum kind kind;
unsigned n_cqs;
_Atomic unsigned ignored, arms, events, empty_reads, taken;
void (*interrupted)(void);
void (*between)(bool locked);
struct vb_part part;
struct vb_cq cqs[CQS];

static void may_come_between(bool locked)
{
    if (between)
        between(locked);
}

static int poll_cq(struct ibv_cq *cq, int max, struct ibv_wc *wc)
{
    struct hw *h = (struct hw *)cq;
    int n = 0;

    may_come_between(true);
    pthread_mutex_lock(&hw_lock);
    for (; n < max && h->there; n++, h->there--)
        wc[n] = (struct ibv_wc){.wr_id = UINT64_MAX};
    pthread_mutex_unlock(&hw_lock);
    may_come_between(true);
    atomic_fetch_add(&taken, (unsigned)n);
    return n;
}

static void arm_hw(struct hw *h)
{
    h->fires = true;
    if (kind == EAGER && h->there) {
        h->fires = false;
        h->on_the_way++;
    }
}

static int notify_cq(struct ibv_cq *cq, int solicited)
{
    struct hw *h = (struct hw *)cq;
    bool in_vain = false;

    (void)solicited;
    may_come_between(false);
    pthread_mutex_lock(&hw_lock);
    if (kind == NUMBER || kind == EAGER) {
        in_vain = h->seen_number == h->number;
        h->seen_number = h->number;
    } else if (kind == FLAG) {
        in_vain = h->is_armed;
        h->is_armed = true;
        h->skip_arm = in_vain;
    }
    if (in_vain)
        atomic_fetch_add(&ignored, 1);
    else
        arm_hw(h);
    atomic_fetch_add(&arms, 1);
    pthread_mutex_unlock(&hw_lock);
    may_come_between(false);
    return 0;
}

static int get_event(struct ibv_comp_channel *channel, struct ibv_cq **cq, void **context)
{
    struct hw *h = NULL;

    (void)channel, (void)context;
    may_come_between(false);
    pthread_mutex_lock(&hw_lock);
    for (unsigned i = 0; i < n_cqs && !h; i++)
        if (hw[i].read)
            h = &hw[i];
    if (h)
        h->read--;
    pthread_mutex_unlock(&hw_lock);
    if (!h) {
        atomic_fetch_add(&empty_reads, 1);
        errno = EAGAIN;
        return -1;
    }
    may_come_between(false);
    pthread_mutex_lock(&hw_lock);
    h->number++;
    h->is_armed = h->skip_arm;
    h->skip_arm = false;
    if (h->is_armed)
        arm_hw(h);
    pthread_mutex_unlock(&hw_lock);
    may_come_between(false);
    atomic_fetch_add(&events, 1);
    *cq = &h->cq;
    return 0;
}

static void ack_events(struct ibv_cq *cq, unsigned n)
{
    (void)cq, (void)n;
}

void complete(unsigned i)
{
    pthread_mutex_lock(&hw_lock);
    hw[i].there++;
    if (hw[i].fires) {
        hw[i].fires = false;
        hw[i].on_the_way++;
    }
    pthread_mutex_unlock(&hw_lock);
}

void interrupt(void)
{
    unsigned n = 0;

    pthread_mutex_lock(&hw_lock);
    for (unsigned i = 0; i < n_cqs; i++)
        for (; hw[i].on_the_way; n++, hw[i].on_the_way--)
            hw[i].read++;
    pthread_mutex_unlock(&hw_lock);
    if (n && interrupted)
        interrupted();
}

void begin(enum kind k, unsigned n)
{
    static struct ibv_context context;
    static struct ibv_comp_channel channel;

    context.ops.poll_cq = poll_cq;
    context.ops.req_notify_cq = notify_cq;
    vdl.get_cq_event = get_event;
    vdl.ack_cq_events = ack_events;
    kind = k;
    n_cqs = n;
    memset(hw, 0, sizeof(hw));
    memset(cqs, 0, sizeof(cqs));
    part = (struct vb_part){.channel = &channel};
    for (unsigned i = 0; i < n; i++) {
        hw[i].cq.context = &context;
        hw[i].number = 1;
        cqs[i] = (struct vb_cq){.cq = &hw[i].cq, .used = VB_SQ + VB_RQ};
        part.cq[i] = &cqs[i];
    }
    part.n_cq = n;
    armed = ignored = arms = events = empty_reads = taken = 0;
    self = false;
    between = NULL;
    interrupted = NULL;
}

int drain(void)
{
    return vb_shard_drain(&part.base);
}

unsigned left_in(unsigned i)
{
    return hw[i].there;
}

void throw_away(unsigned i)
{
    hw[i].there = 0;
}

uint64_t dice_state;

unsigned dice(unsigned n)
{
    dice_state = dice_state * 6364136223846793005u + 1442695040888963407u;
    return (unsigned)(dice_state >> 33) % n;
}
