/*
 * hold.c - calls of the application that a second thread, or objects opened under other
 * credentials, would make fail or mean something else: unshare, setns, seccomp, set*id.
 *
 *   fb_hold      no rail begins from here on; those that there are leave, are given back, and what
 *                the wires have opened is closed; then the progress thread ends
 *   the call
 *   fb_release   the thread comes back, as the caller's child; connections ask anew
 *
 * The gate goes up before anything is looked at, and every rail begins on the progress thread: what
 * had passed the gate before is found by the job that ends rails, because jobs run one after the
 * other. Several threads may hold at once. Who finds that another one has ended the thread has
 * nothing left to wait for: its gate was up while that one looked. Application threads.
 */
#include "ipoib_fallback/hold.h"

#include "ipoib_fallback/heir.h"
#include "ipoib_fallback/netns.h"
#include "ipoib_fallback/pubfile.h"
#include "ipoib_fallback/reach.h"
#include "ipoib_fallback/stream.h"
#include "ipoib_fallback/tap.h"

#include "config/env.h"
#include "config/log.h"
#include "rsock/loop.h"
#include "rsock/section.h"
#include "rsock/shard.h"
#include "rsock/sys.h"

#include <errno.h>

#define STEP_NS    100000u
#define THROUGH_NS 5000000000u /* somebody else may keep the thread waiting (README, FUSE) */
#define LOST_NS \
    1000000u /* a sleep where the progress thread cannot go on: nobody else may tell it of news */
#define TURN_NS    5000000u   /* between two turns of its work */
#define AGAIN_NS   500000000u /* between two attempts to start it */
#define PARTING_NS 200000u    /* between two looks whether the peers have been told */

static _Atomic uint32_t holds, all_holds; /* of them, those that no rail outlives */
static _Atomic int why;                   /* of the newest hold */
static _Atomic uint32_t asked;            /* counts jobs; the newest that is done is in: */
static _Atomic uint32_t done, ended; /* ended: of those that end rails, which may take a while */
static _Atomic int for_good;         /* a reason: nothing boards any more */

bool hold_on(void)
{
    return atomic_load(&holds) || atomic_load(&for_good);
}

int hold_for_good(void)
{
    return atomic_load(&for_good);
}

bool fb_filtered(void)
{
    static _Atomic uint8_t known; /* 1 no, 2 yes */
    uint8_t k = atomic_load_explicit(&known, memory_order_relaxed);

    if (!k) {
        k = cfg.seccomp_rail || sys_filtered() ? 2 : 1;
        atomic_store_explicit(&known, k, memory_order_relaxed);
    }
    return k == 2 || hold_for_good();
}

void hold_forget(void)
{
    atomic_store(&holds, 0);
    atomic_store(&all_holds, 0);
}

static bool concerned(const struct rsk_rail *rail)
{
    return rail && (atomic_load(&all_holds) || rail->wire->bound_to_credentials);
}

/* ---- on the progress thread */

static _Atomic uint32_t found_rails;

static void mark(struct fb_conn *c, void *count)
{
    if (!concerned(c->x->rail))
        return;
    c->x->end_reason = atomic_load(&why);
    ++*(uint32_t *)count;
}

static bool has_come(_Atomic uint32_t *count, uint32_t seq)
{
    return (int32_t)(atomic_load(count) - seq) >= 0;
}

/* Also the older ones are: what has been done now holds for them. */
static void is_through(_Atomic uint32_t *count, void *seq)
{
    if (!has_come(count, (uint32_t)(uintptr_t)seq))
        atomic_store(count, (uint32_t)(uintptr_t)seq);
}

/* What the rails end for, and how many there are. */
static void mark_job(void *seq)
{
    uint32_t n = 0;

    conn_each(mark, &n);
    atomic_store(&found_rails, n);
    is_through(&done, seq);
}

/* A rail that has not been left by now, or was only about to be used. It may stay for its memory,
 * as long as its reader has not come to the end. */
static void end_one(struct fb_conn *c, void *unused)
{
    (void)unused;
    if (concerned(c->x->rail))
        link_end(c, atomic_load(&why));
}

/* Why they end is on its way to the peers, over what is to be closed: some microseconds, and
 * 0.1 s at most. */
static bool parting(void)
{
    return rsk_verbs_wire.parting && rsk_verbs_wire.parting();
}

static void shut_job(void *seq)
{
    /* While this one waited another hold's may have done it, or all have ended, as the
     * thread was away. */
    if (has_come(&ended, (uint32_t)(uintptr_t)seq) || !atomic_load(&holds))
        return;
    if (parting() && rsk_timer_add(PARTING_NS, shut_job, seq))
        return;
    conn_each(end_one, NULL); /* a hold that has come meanwhile may be for more of them */
    reach_unknown();
    if (rsk_shm_wire.shut)
        rsk_shm_wire.shut(atomic_load(&why));
    if (rsk_verbs_wire.shut)
        rsk_verbs_wire.shut(atomic_load(&why));
    is_through(&ended, seq);
}

static void end_job(void *seq)
{
    conn_each(end_one, NULL);
    shut_job(seq);
}

/* Who accepts makes himself reachable anew, with what the call has changed, when his streams have
 * shown again that they are worth it. */
static void again(struct fb_conn *c, void *unused)
{
    (void)unused;
    /* Those that have not asked are looked at no further: there may be very many. */
    if (c->s.role == FB_ACCEPTED && conn_flag(c, CF_ASKED) && c->x->rdv == RDV_NONE &&
        !c->x->rail && !conn_flag(c, CF_PINNED | CF_CLOSED))
        conn_afresh(c);
}

static void again_job(void *unused)
{
    (void)unused;
    netns_moved();
    conn_each(again, NULL);
}

/* ---- on the application's */

/* One that is lost goes on with the caller, unless another hold has ended it by now. */
static bool goes_on(void)
{
    return rsk_loop_running() || (rsk_loop_lost() && rsk_loop_turn());
}

/* Posts and waits until fn has counted, until then at most (monotonic ns); false if there is no
 * progress thread (any more), or it has not come to it. */
static bool run_there(void (*fn)(void *), _Atomic uint32_t *count, uint64_t until)
{
    uint32_t seq = atomic_fetch_add(&asked, 1) + 1;

    if (!goes_on() || rsk_loop_post(fn, (void *)(uintptr_t)seq) < 0)
        return false;
    while (goes_on() && !has_come(count, seq) && fb_io.now() < until)
        fb_io.wait(-1, 0, STEP_NS);
    return goes_on() && has_come(count, seq);
}

static void through_job(void *seq)
{
    is_through(&done, seq);
}

void fb_through(void)
{
    (void)run_there(through_job, &done, fb_io.now() + THROUGH_NS);
}

void fb_hold(int reason, enum fb_hold_what what)
{
    atomic_store(&why, reason);
    atomic_fetch_add(&all_holds, what == FB_HOLD_THREAD);
    atomic_fetch_add(&holds, 1);
    if (run_there(mark_job, &done, UINT64_MAX)) {
        if (atomic_load(&found_rails))
            fb_leave_all(reason, FB_NOBODY);
        run_there(end_job, &ended, UINT64_MAX);
    }
    /* Also for credentials: threads that change them one by one share none afterwards, and the
     * kernel lets rxe post only by who shares those that opened the device. The next thread shares
     * the caller's. */
    rsk_loop_pause();
}

static void look_yourself(struct fb_conn *c, void *unused)
{
    (void)unused;
    conn_wake(c, RSK_RX | RSK_TX | FB_EV_STATE);
}

void fb_release(enum fb_hold_what what)
{
    int err;

    if (!atomic_load(&holds))
        return; /* a handler forked inside the call, and this is the child */
    atomic_fetch_sub(&all_holds, what == FB_HOLD_THREAD);
    err = rsk_loop_resume();
    if (err) {
        char number[CFG_ERRNO_WORDS];

        log_warn("the progress thread cannot go on for now: %s", hold_words(err, number));
        /* Who sleeps on what it watches must come and sleep for a while only: fb_alone. */
        conn_each(look_yourself, NULL);
    }
    if (atomic_fetch_sub(&holds, 1) == 1 && rsk_loop_running())
        rsk_loop_post(again_job, NULL);
}

const char *hold_words(int err, char number[static CFG_ERRNO_WORDS])
{
    switch (err) {
    case -EAGAIN:
        return "the process may have no thread more, or no memory for its stack";
    case -ENOSPC:
        return "the user has as many epoll watches as he may";
    default:
        return cfg_errno_words(-err, number);
    }
}

int hold_start(void)
{
    /* monotonic ns; failures are dear, and there may be very many who ask */
    static _Atomic uint64_t next;
    bool lost = rsk_loop_lost();
    uint64_t now;
    int err;

    if (rsk_loop_running())
        return 0;
    now = fb_io.now();
    if (now < atomic_load(&next))
        return -EBUSY;
    err = rsk_loop_start(cfg.uring);
    if (err && err != -EBUSY)
        atomic_store(&next, now + AGAIN_NS);
    if (!err && lost)
        rsk_loop_post(again_job, NULL);
    return err;
}

uint64_t fb_sleep_most(void)
{
    return rsk_loop_lost() ? LOST_NS : UINT64_MAX;
}

static void alone(void)
{
    static _Atomic uint64_t next; /* there may be many who are, and others that never sleep */
    uint64_t now = fb_io.now(), due = atomic_load(&next);

    if (now >= due && atomic_compare_exchange_strong(&next, &due, now + TURN_NS) &&
        hold_start() < 0)
        rsk_loop_turn();
}

void fb_alone(void)
{
    if (__builtin_expect(!rsk_loop_lost(), 1) || hold_for_good() || rsk_in_handler())
        return;
    alone();
    rsk_shard_drain(rsk_shard_common());
}

/* ---- for good */

static void never_again(struct fb_conn *c, void *reason)
{
    if (conn_set(c, CF_PINNED))
        conn_reason(c, *(int *)reason);
    /* Who sleeps on a rail's behalf has to look after the socket by himself from now on. */
    look_yourself(c, NULL);
}

void fb_plain_for_good(int reason)
{
    struct fb_pub_file *file = fb_pub_head();

    atomic_store(&for_good, reason);
    conn_each(never_again, &reason);
    tap_end_all(reason);
    /* Nobody answers children any more. */
    if (file)
        atomic_store(&file->serving, 0);
}

bool fb_retire(struct fb_stream *s, int fd)
{
    struct fb_conn *c = conn_of(s);
    bool sends, receives;

    fb_lock(&c->x->tx.lock);
    fb_lock(&c->x->rx.lock);
    sends = c->x->tx.state == TX_T && !atomic_load(&c->x->swallowed);
    receives = c->x->rx.state == RX_t;
    /* What the peer has yet to send again, its kernel sends, and ours answers with a reset if
     * nobody reads it. */
    if (!sends)
        fb_io.abort(fd);
    rx_unlock(c);
    tx_unlock(c);
    return sends && receives;
}
