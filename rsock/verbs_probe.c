/*
 * verbs_probe.c - finds out that the other end of a silent rail is gone.
 *
 * What is posted is watched by the adapter: a peer that does not acknowledge it ends the queue pair
 * after its retries. That takes 2 s at most with an adapter that keeps to the time-out which
 * vb_tune_id sets: 7 times 67 ms, or up to four times as much (IB spec 9.7.6.1.3). With others, and
 * on kernels that do not know the setting, it may be a quarter of a minute.
 *
 * And this end may wait without anything posted: for an ECHO before its first byte may go, for a
 * WAKE before the next one may, for credit that never comes. If that message of the peer's was
 * lost for good, then the peer's queue pair has failed and is gone, its disconnect was lost like
 * the rest, and over the anchor it says nothing on its own (frames are owed). Likewise bytes
 * that its adapter has still acknowledged while it was failing: they are not delivered, and it
 * waits for our RESUME.
 *
 * So while something accepted here is not known to be consumed, and what is sent does not move, the
 * credit block is written once more: after 0.2 s, then at intervals that double up to 3.2 s. It
 * says nothing new, takes no message credit, and its completion is asked for. If nothing completes
 * for 2 s the rail has failed. The 2 s are counted in looks, a fifth of a second apart, each of
 * which has found the completion queue empty: so an hour for which the process was stopped, by a
 * signal or with its virtual machine, counts as one look. A peer that is stopped does not matter:
 * its adapter acknowledges, or its kernel.
 *
 * The receiver's part: it says what it has consumed when it falls silent, however little that
 * is. Else there would nearly always be bytes that are not known to be consumed, and every idle
 * rail would probe.
 *
 * One timer for the process. It runs while rails move or somebody has to be asked, and not
 * otherwise: senders and receivers start it again (vb_probe_wanted). Progress thread,
 * except vb_probe_ask.
 */
#include "config/log.h"
#include "config/reason.h"
#include "rsock/verbs_int.h"

static const uint64_t LOOK_NS = 200 * 1000000;
enum { LONGEST = 4 /* doublings */, LOOKS = 10 };

_Atomic bool vb_probing;
static _Atomic bool asked;
static struct rsk_timer *timer;

static void look(void *arg);

/* Everything that moves when a direction does; each only grows. */
static uint64_t sent(struct vb_rail *r)
{
    return atomic_load_explicit(&r->tx, memory_order_relaxed) +
           atomic_load_explicit(&r->posted, memory_order_relaxed) + vb_known(r);
}

static uint64_t got(struct vb_rail *r)
{
    return (atomic_load_explicit(&r->arrived, memory_order_relaxed) & ~VB_FROZEN) +
           atomic_load_explicit(&r->consumed, memory_order_relaxed);
}

static bool owes_credit(struct vb_rail *r)
{
    return atomic_load_explicit(&r->rx_on, memory_order_acquire) &&
           atomic_load_explicit(&r->consumed, memory_order_relaxed) !=
               atomic_load_explicit(&r->pub_consumed, memory_order_relaxed);
}

static bool waits(struct vb_rail *r)
{
    return atomic_load_explicit(&r->waiting, memory_order_relaxed) ||
           (atomic_load_explicit(&r->tx_on, memory_order_acquire) &&
            !atomic_load_explicit(&r->stopped, memory_order_relaxed) &&
            atomic_load_explicit(&r->tx, memory_order_relaxed) != vb_known(r));
}

static void ask(struct vb_rail *r, uint64_t now)
{
    if (!r->probe_looks) {
        atomic_store(&r->probe_end, 0);
        r->probe_done = atomic_load(&r->sq_done);
        r->probe_looks = 1;
        r->probe_look_at = now + LOOK_NS;
        vb_due(r, VB_DUE_PROBE);
    }
    if (r->probe_quiet < LONGEST)
        r->probe_quiet++;
}

/* It has not been acknowledged yet. */
static bool is_out(struct vb_rail *r, uint64_t now)
{
    uint64_t end;
    uint32_t done;

    if (now < r->probe_look_at) /* this look is another rail's */
        return true;
    r->probe_look_at = now + LOOK_NS;
    /* Somebody else is draining: what he finds is seen at the next look. */
    if (rsk_shard_drain(r->base.shard) < 0)
        return true;
    end = atomic_load(&r->probe_end);
    done = atomic_load(&r->sq_done);
    if (end && vb_is_done(r, (uint32_t)end)) {
        r->probe_looks = 0;
        return false;
    }
    if (done != r->probe_done) { /* others are, one after another */
        r->probe_done = done;
        r->probe_looks = 1;
    } else if (++r->probe_looks > LOOKS) {
        log_info("verbs: rail %u on %s: nothing that is sent is acknowledged", r->index,
                 r->base.where);
        vb_rail_fail(r, RSN_RAIL_FAILED);
    }
    return true;
}

static uint64_t sooner(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

/* When the rail has to be looked at next; UINT64_MAX: not before it moves. */
static uint64_t look_at(struct vb_rail *r, uint64_t now)
{
    uint64_t at_sent = sent(r), at_got = got(r), next = UINT64_MAX;

    if (at_got != r->probe_got) {
        r->probe_got = at_got;
        next = now + LOOK_NS;
    } else if (owes_credit(r)) {
        vb_due(r, VB_DUE_CREDIT);
        next = now + LOOK_NS;
    }
    if (at_sent != r->probe_sent) {
        r->probe_sent = at_sent;
        r->probe_quiet = 0;
        r->probe_at = now + LOOK_NS;
        next = sooner(next, r->probe_at);
    } else if (waits(r)) {
        if (now >= r->probe_at) {
            ask(r, now);
            r->probe_at = now + (LOOK_NS << r->probe_quiet);
        }
        next = sooner(next, r->probe_at);
    }
    if (r->probe_looks && is_out(r, now))
        next = sooner(next, r->probe_look_at);
    return next;
}

static void again(uint64_t ns)
{
    timer = rsk_timer_add(ns, look, NULL);
    if (!timer) /* no memory: whoever moves something next asks again */
        atomic_store(&vb_probing, false);
}

static void look(void *arg)
{
    uint64_t now = sys_now(), next = UINT64_MAX;

    (void)arg;
    timer = NULL;
    for (unsigned i = 0; i < vb_rails_high; i++) {
        struct vb_rail *r = atomic_load_explicit(&vb_rails[i], memory_order_relaxed);
        uint64_t at;

        if (!r || r->state != VB_UP || atomic_load_explicit(&r->base.failed, memory_order_relaxed))
            continue;
        at = look_at(r, now);
        next = at < next ? at : next;
    }
    if (next != UINT64_MAX) {
        atomic_store(&vb_probing, true);
        again(next > now ? next - now : 1);
    } else if (atomic_exchange(&vb_probing, false)) {
        /* Who still saw the flag up has moved something before, or just now, without a fence in
         * between: that is seen by one more look, a long time after. */
        again(LOOK_NS);
    }
}

void vb_probe_ask(void)
{
    if (atomic_exchange(&vb_probing, true))
        return;
    atomic_store(&asked, true);
    vb_kick();
}

void vb_probe_kicked(void)
{
    if (atomic_exchange(&asked, false) && !timer)
        again(LOOK_NS);
}

void vb_probe_forget(void)
{
    timer = NULL;
    atomic_store(&vb_probing, false);
    atomic_store(&asked, false);
}
