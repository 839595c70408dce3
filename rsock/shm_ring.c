/*
 * shm_ring.c - the operations on a shm rail's memory. No system call but to wake, no lock,
 * no malloc; which threads may call what is said in wire.h.
 *
 * Bytes:   producer  copy, store tail (release), fence P, load want_rx, wake if set
 *          sleeper   set want_rx, fence A, load tail, sleep if nothing
 * Credit:  consumer  store consumed (release), fence C, load want_tx, wake if set
 *          sleeper   set want_tx, fence A, load consumed, sleep if no room
 * P pairs with A, and C with A: one of the two sides sees the other's store.
 *
 * `consumed` is stored at every consume, into a line that the producer reads only when its cached
 * credit is short; but fence C is made only every rx_step bytes (a quarter of what the producer may
 * keep). That loses no wake-up: a producer sleeps when it has less room than it wants, at most a
 * third of what it may keep (RSK_MUCH). The producer has seen what was consumed before the last
 * fence C that did not see it, so at least two thirds are still to be consumed after that fence,
 * and consuming them makes the next one. It is woken when at least a quarter is free, or the
 * consumer does not read, which is when TCP would not wake it either.
 */
#include "rsock/shm_ring.h"

#include <errno.h>
#include <limits.h>
#include <string.h>
#include <sys/mman.h>

#include "config/log.h"
#include "config/reason.h"
#include "rsock/copy.h"
#include "rsock/fence.h"
#include "rsock/shm_bell.h"
#include "rsock/sys.h"

/* Shorthands: what is said about ordering at each use is what counts. */
#define RELAXED     memory_order_relaxed
#define get(p)      atomic_load_explicit((p), RELAXED)
#define set(p, v)   atomic_store_explicit((p), (v), RELAXED)
#define unlikely(x) __builtin_expect(!!(x), 0)

static void wake_word(_Atomic uint32_t *word)
{
    /* Changed first: a thread that is about to sleep on the old value does not. */
    atomic_fetch_add_explicit(word, 1, memory_order_release);
    sys_futex(word, FUTEX_WAKE, INT_MAX, NULL);
}

void shm_fail(struct shm_rail *r, int reason)
{
    uint32_t none = 0;

    if (!atomic_compare_exchange_strong(&r->base.failed, &none, (uint32_t)reason))
        return;
    log_info("shm rail failed: %s", cfg_reason_name(reason));
    rsk_fence();
    wake_word(r->base.rx_word);
    wake_word(r->base.tx_word);
    if (r->my_data.bell)
        shm_bell_ring(r->my_data.bell, r->my_data.index);
    if (r->my_ctl.bell && r->my_ctl.bell != r->my_data.bell)
        shm_bell_ring(r->my_ctl.bell, r->my_ctl.index);
    /* Nothing else would tell the other end: this one owes it no frame as long as it has nothing to
     * say on TCP, and what the other one writes into the ring is not read any more. */
    set(&r->out->words.gone, 1);
    shm_peer_ring(r->peer_ctl.bell, r->peer_ctl.index);
}

void shm_kill(struct rsk_rail *rail, int reason)
{
    uint32_t none = 0;

    shm_tx_ends(rail);
    atomic_compare_exchange_strong(&rail->failed, &none, (uint32_t)reason);
}

/* No fence: the peer looks once the kernel has shown it our FIN, for which a system call
 * comes between. */
void shm_tx_ends(struct rsk_rail *rail)
{
    atomic_store_explicit(&shm_of(rail)->out->words.ends, 1, memory_order_release);
}

/* The peer sleeps, or did: takes its wish and fulfils it. */
static __attribute__((noinline)) void wake_peer(struct shm_rail *r, _Atomic uint32_t *want,
                                                _Atomic uint32_t *word)
{
    uint32_t how = atomic_exchange_explicit(want, 0, memory_order_acq_rel);

    if (how & RSK_BY_FUTEX)
        wake_word(word);
    if (how & RSK_BY_SHARD)
        shm_peer_ring(r->peer_data.bell, r->peer_data.index);
}

/* ---- sender half */

void shm_tx_start(struct rsk_rail *rail, uint64_t S)
{
    struct shm_rail *r = shm_of(rail);
    uint32_t cap = rail->tx_size;

    if (rail->tx_limit && rail->tx_limit < cap)
        cap = rail->tx_limit;
    r->tx_base = S;
    set(&r->tx, S);
    set(&r->freed, S);
    /* The receiver's rx_start may come later: until then the word is a left-over, not credit. */
    r->tx_stale = get(&r->out->consumer.consumed);
    set(&r->out->producer.credit_step, cap / 4 ? cap / 4 : 1);
    atomic_store_explicit(&r->tx_open, false, RELAXED);
    set(&r->tx_cap, cap);
}

/* Takes the published consumption over. Acquire: bytes below it may be overwritten, pairs
 * with the release in shm_rx_consume. */
static uint64_t credit(struct shm_rail *r, uint64_t tx)
{
    uint64_t freed = get(&r->freed);
    uint64_t c = atomic_load_explicit(&r->out->consumer.consumed, memory_order_acquire);

    if (c - freed <= tx - freed) {
        set(&r->freed, c);
        return c;
    }
    if (c != r->tx_stale)
        shm_fail(r, RSN_PEER_PROTOCOL);
    return freed;
}

size_t shm_tx_space(struct rsk_rail *rail, struct iovec v[2])
{
    struct shm_rail *r = shm_of(rail);
    uint64_t tx = get(&r->tx), used = tx - get(&r->freed);
    uint32_t cap = get(&r->tx_cap);

    v[1].iov_len = 0;
    if (get(&r->tx_open)) {
        v[0].iov_base = r->out_data + (tx & (rail->tx_size - 1));
        /* The consumer's line is fetched only when the cached credit runs low. */
        if (unlikely(used > cap / 2))
            used = tx - credit(r, tx);
    } else {
        v[0].iov_base = r->staging + (tx - r->tx_base);
    }
    v[0].iov_len = used < cap && !get(&rail->failed) ? cap - used : 0;
    return v[0].iov_len;
}

static inline void publish_tail(struct shm_dir *out, uint64_t tx)
{
    /* Release: the bytes are there when the cursor says so; pairs with shm_rx_peek. */
    atomic_store_explicit(&out->producer.tail, tx, memory_order_release);
    rsk_fence(); /* P */
}

static inline void publish(struct shm_rail *r, uint64_t tx)
{
    publish_tail(r->out, tx);
    if (unlikely(get(&r->out->sleeper.want_rx)))
        wake_peer(r, &r->out->sleeper.want_rx, &r->out->words.rx_word);
}

int shm_tx_put(struct rsk_rail *rail, size_t n)
{
    struct shm_rail *r = shm_of(rail);
    uint64_t tx = get(&r->tx) + n;

    /* Accepted in any case: they are where tx_kept looks for them. Published also if the rail has
     * just failed: we may be killed before they have gone by TCP. */
    set(&r->tx, tx);
    if (unlikely(!get(&r->tx_cap)))
        return -EPIPE;
    if (get(&r->tx_open))
        publish(r, tx);
    return unlikely(get(&rail->failed)) ? -EPIPE : 0;
}

/* Of any size, and where the cached credit runs low. */
static __attribute__((noinline)) size_t give_any(struct shm_rail *r, const void *p, size_t n)
{
    uint64_t tx = get(&r->tx), used = tx - get(&r->freed);
    uint32_t cap = get(&r->tx_cap);

    if (unlikely(used > cap / 2))
        used = tx - credit(r, tx);
    if (unlikely(used >= cap || n > cap - used))
        return 0;
    rsk_copy(r->out_data + (tx & (r->base.tx_size - 1)), p, n, RSK_INTO);
    set(&r->tx, tx + n);
    publish(r, tx + n);
    return n;
}

static __attribute__((noinline)) size_t gave_sleeper(struct shm_rail *r, size_t n)
{
    wake_peer(r, &r->out->sleeper.want_rx, &r->out->words.rx_word);
    return n;
}

/* As give_any; a short message, which the peer may be waiting for, with no other call on its way,
 * and so no frame. */
size_t shm_tx_give(struct rsk_rail *rail, const void *p, size_t n)
{
    struct shm_rail *r = shm_of(rail);
    struct shm_dir *out = r->out;
    uint64_t tx = get(&r->tx);

    if (unlikely(!get(&r->tx_open) || get(&rail->failed)))
        return 0;
    if (!rsk_is_few(n) || unlikely(tx + n - get(&r->freed) > get(&r->tx_cap) / 2))
        return give_any(r, p, n);
    rsk_copy_few((char *)r->out_data + (tx & (rail->tx_size - 1)), p, n);
    set(&r->tx, tx + n);
    publish_tail(out, tx + n);
    return unlikely(get(&out->sleeper.want_rx)) ? gave_sleeper(r, n) : n;
}

int shm_tx_open(struct rsk_rail *rail)
{
    struct shm_rail *r = shm_of(rail);
    uint64_t tx = get(&r->tx);
    size_t n = tx - r->tx_base;

    if (get(&rail->failed) || !get(&r->tx_cap))
        return -EPIPE;
    if (get(&r->tx_open))
        return 0;
    /* Nothing is outstanding, so it fits; the second mapping takes what passes the end. */
    memcpy(r->out_data + (r->tx_base & (rail->tx_size - 1)), r->staging, n);
    atomic_store_explicit(&r->tx_open, true, memory_order_release);
    if (!n)
        return 0; /* ringing for nothing would use up the receiver's wish to be told */
    publish(r, tx);
    SYS6(SYS_madvise, r->staging, rail->tx_size, MADV_DONTNEED, 0, 0, 0);
    return 0;
}

ssize_t shm_tx_push(struct rsk_rail *rail)
{
    struct shm_rail *r = shm_of(rail);

    if (get(&rail->failed))
        return -EPIPE;
    return get(&r->tx_open) ? 0 : (ssize_t)(get(&r->tx) - r->tx_base);
}

uint64_t shm_tx_freed(struct rsk_rail *rail)
{
    struct shm_rail *r = shm_of(rail);

    return get(&r->tx_open) ? credit(r, get(&r->tx)) : get(&r->freed);
}

/* As credit(), but a thread that has not the tx lock must not move F. A dead receiver's `consumed`
 * does not move; a sender that is at work only adds to what it has not read. */
enum rsk_fate shm_tx_fate(struct rsk_rail *rail)
{
    struct shm_rail *r = shm_of(rail);
    uint64_t freed = get(&r->freed), c, tx;

    if (get(&rail->failed) || get(&r->in->words.gone) ||
        atomic_load_explicit(&r->in->words.ends, memory_order_acquire))
        return RSK_LIVES;
    c = atomic_load_explicit(&r->out->consumer.consumed, memory_order_acquire);
    tx = get(&r->tx);
    return (c - freed <= tx - freed ? c : freed) != tx ? RSK_DIED_UNREAD : RSK_DIED;
}

size_t shm_tx_kept(struct rsk_rail *rail, uint64_t from, uint64_t to, struct iovec v[2])
{
    struct shm_rail *r = shm_of(rail);
    uint64_t tx = get(&r->tx), freed = get(&r->freed);

    v[0].iov_base = NULL;
    v[0].iov_len = v[1].iov_len = 0;
    if (from - freed > tx - freed || to - from > tx - from)
        return 0;
    v[0].iov_base = get(&r->tx_open) ? r->out_data + (from & (rail->tx_size - 1))
                                     : r->staging + (from - r->tx_base);
    v[0].iov_len = to - from;
    return to - from;
}

void shm_tx_stop(struct rsk_rail *rail)
{
    set(&shm_of(rail)->tx_cap, 0);
}

/* ---- receiver half */

void shm_rx_start(struct rsk_rail *rail, uint64_t S)
{
    struct shm_rail *r = shm_of(rail);
    uint64_t tail = get(&r->in->producer.tail);

    /* The sender's tx_open may come later, or be over: a tail that can be right is right. */
    set(&r->rx_stale, tail - S <= rail->rx_size ? S : tail);
    set(&r->rx, S);
    set(&r->arrived, S);
    r->rx_told = S;
    r->rx_step = rail->rx_size / 4;
    atomic_store_explicit(&r->in->consumer.consumed, S, memory_order_release);
    atomic_store_explicit(&r->rx_live, true, memory_order_release);
}

/* Takes over a tail beyond `arrived`. False: it cannot be right. */
static inline bool arrives(struct shm_rail *r, uint64_t rx, uint64_t arrived, uint64_t tail)
{
    uint32_t step;

    if (unlikely(tail - arrived > r->base.rx_size - (arrived - rx)))
        return false;
    set(&r->arrived, tail);
    /* In the same line, so free. Out of bounds it would hurt only the sender itself. */
    step = get(&r->in->producer.credit_step);
    if (unlikely(step != r->rx_step) && step - 1 < r->base.rx_size / 4)
        r->rx_step = step;
    return true;
}

/* Looks for bytes beyond `arrived`. */
static uint64_t look(struct shm_rail *r, uint64_t rx, uint64_t arrived)
{
    uint64_t tail = atomic_load_explicit(&r->in->producer.tail, memory_order_acquire);

    if (tail == arrived || arrives(r, rx, arrived, tail))
        return tail;
    if (tail != get(&r->rx_stale)) {
        set(&r->rx_live, false);
        shm_fail(r, RSN_PEER_PROTOCOL);
    }
    return arrived;
}

size_t shm_rx_peek(struct rsk_rail *rail, struct iovec v[2])
{
    struct shm_rail *r = shm_of(rail);
    uint64_t rx = get(&r->rx), arrived = get(&r->arrived);

    if (get(&r->rx_live))
        arrived = look(r, rx, arrived);
    v[0].iov_base = r->in_data + (rx & (rail->rx_size - 1));
    v[0].iov_len = arrived - rx;
    v[1].iov_len = 0;
    return arrived - rx;
}

/* True: credit_due comes next. */
static inline bool consumed(struct shm_rail *r, struct shm_dir *in, uint64_t rx)
{
    set(&r->rx, rx);
    /* Release: our reads of the bytes are done before they can be overwritten. */
    atomic_store_explicit(&in->consumer.consumed, rx, memory_order_release);
    return unlikely(rx - r->rx_told >= r->rx_step);
}

/* The value is n. */
static __attribute__((noinline)) size_t credit_due(struct shm_rail *r, size_t n)
{
    r->rx_told = get(&r->rx);
    rsk_fence(); /* C */
    if (unlikely(get(&r->in->producer.want_tx)))
        wake_peer(r, &r->in->producer.want_tx, &r->in->words.tx_word);
    return n;
}

void shm_rx_consume(struct rsk_rail *rail, size_t n)
{
    struct shm_rail *r = shm_of(rail);

    if (consumed(r, r->in, get(&r->rx) + n))
        credit_due(r, n);
}

static __attribute__((noinline)) size_t take_any(struct shm_rail *r, void *p, size_t n)
{
    uint64_t rx = get(&r->rx), arrived = look(r, rx, get(&r->arrived));

    if (n > arrived - rx)
        n = arrived - rx;
    if (!n)
        return 0;
    rsk_copy(p, r->in_data + (rx & (r->base.rx_size - 1)), n, RSK_OUT_OF);
    return consumed(r, r->in, rx + n) ? credit_due(r, n) : n;
}

/* As take_any; with no frame for a short message, or nothing. */
size_t shm_rx_take(struct rsk_rail *rail, void *p, size_t n)
{
    struct shm_rail *r = shm_of(rail);
    struct shm_dir *in = r->in;
    uint64_t rx = get(&r->rx), arrived = get(&r->arrived), tail;

    if (unlikely(!get(&r->rx_live) || get(&rail->failed)))
        return 0;
    tail = atomic_load_explicit(&in->producer.tail, memory_order_acquire);
    if (tail != arrived && unlikely(!arrives(r, rx, arrived, tail)))
        return take_any(r, p, n);
    if (n > tail - rx)
        n = tail - rx;
    if (!rsk_is_few(n))
        return n ? take_any(r, p, n) : 0;
    rsk_copy_few(p, (char *)r->in_data + (rx & (rail->rx_size - 1)), n);
    return consumed(r, in, rx + n) ? credit_due(r, n) : n;
}

uint64_t shm_rx_freeze(struct rsk_rail *rail)
{
    struct shm_rail *r = shm_of(rail);
    uint64_t arrived = get(&r->arrived);

    if (get(&r->rx_live))
        arrived = look(r, get(&r->rx), arrived);
    set(&r->rx_live, false);
    return arrived;
}

/* ---- waiting */

static bool can_send(struct shm_rail *r, unsigned events)
{
    uint64_t tx, freed, c, enough;
    uint32_t cap;

    do {
        /* Without the tx lock, so in this order (freed <= tx <= later c), and once more when
         * the holder of the lock has moved them meanwhile. */
        freed = atomic_load_explicit(&r->freed, memory_order_acquire);
        tx = atomic_load_explicit(&r->tx, memory_order_acquire);
        cap = get(&r->tx_cap);
        enough = events & RSK_MUCH ? rsk_much(&r->base, cap) : 1;
        c = freed;
        if (atomic_load_explicit(&r->tx_open, memory_order_acquire))
            c = atomic_load_explicit(&r->out->consumer.consumed, memory_order_acquire);
        if (c - freed <= tx - freed)
            return tx - c + enough <= cap;
    } while (freed != get(&r->freed) || tx != get(&r->tx));
    return tx - freed + enough <= cap; /* a left-over from before rx_start, or a lie */
}

static bool can_receive(struct shm_rail *r)
{
    uint64_t rx = get(&r->rx);
    uint64_t tail;

    if (!atomic_load_explicit(&r->rx_live, memory_order_acquire))
        return get(&r->arrived) != rx;
    tail = get(&r->in->producer.tail);
    return tail != rx && tail != get(&r->rx_stale);
}

/*
 * For a drain, which comes mostly for bytes: looking for room takes a line from the peer that it
 * writes at each receive, and room would be news that nobody has asked for. A waiter that asked
 * before `tx_asked` is cleared here is told afterwards, as the drain's caller tells everybody; one
 * that asks later has set it again. A drain that was rung for a wish sees `tx_asked`: it was set
 * before want_tx (D), which the peer took before it rang.
 */
static bool asked_for_room(struct shm_rail *r)
{
    if (!get(&r->tx_asked) || !can_send(r, 0))
        return false;
    set(&r->tx_asked, false);
    return true;
}

unsigned shm_poll(struct rsk_rail *rail, unsigned events)
{
    struct shm_rail *r = shm_of(rail);
    unsigned now = 0;

    if (unlikely(get(&r->in->words.gone)))
        shm_fail(r, RSN_RAIL_FAILED);
    if (events & RSK_RX && can_receive(r))
        now |= RSK_RX;
    if (get(&rail->failed))
        now |= RSK_FAIL;
    /* The consumer writes that line at each receive, and waits for it if we have taken it. */
    else if ((events & RSK_TX && can_send(r, events)) ||
             (events & RSK_TX_ASKED && asked_for_room(r)))
        now |= RSK_TX;
    if (events & RSK_CTL && shm_ctl_ready(r, get(&r->ctl_in)))
        now |= RSK_CTL;
    return now;
}

unsigned shm_arm(struct rsk_rail *rail, unsigned events, unsigned how)
{
    struct shm_rail *r = shm_of(rail);

    /* Not undone when news is found: another thread may have armed for the same and sleep.
     * The peer then wakes once for nothing. */
    if (events & RSK_RX)
        atomic_fetch_or_explicit(&r->in->sleeper.want_rx, how, memory_order_relaxed);
    if (events & RSK_TX) {
        set(&r->tx_asked, true);
        atomic_fetch_or_explicit(&r->out->producer.want_tx, how, memory_order_release); /* D */
    }
    rsk_fence(); /* A */
    return shm_poll(rail, events);
}
