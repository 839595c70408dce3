/*
 * rx_front.c - unread bytes that cannot be left in TCP when a forked child asks for the stream:
 * those before a switch, because its frames lie behind them, and can only be taken after them; and
 * those that are in the ring alone, because their sender has ended, or has left, and the first of
 * what it sent again was discarded to make room for what follows. Only the owner's application
 * could take them, and may never do so, if it is the child that is to read.
 *
 * The owner's library takes them out instead, into memory that it shares with each process that
 * asks. They stand in front of whatever the half receives else, in every process that knows of
 * them, and each byte is read by one: whose compare-and-swap of `at` succeeds has the bytes before
 * it. A process may end, be killed, close or hand on its number at any moment, and the others go
 * on. Who can read the connection knows of them: a child that has not used it yet has to ask, as
 * long as some are unread (FB_LENT_BUSY), and what is forked from one that knows has the mapping.
 *
 * To its own half they count as read when they are taken. As long as there are any the half does
 * not become plain, so that every call comes by here.
 */
#include "ipoib_fallback/rx.h"

#include "ipoib_fallback/heir.h"
#include "ipoib_fallback/hold.h"
#include "ipoib_fallback/iov.h"

#include "config/log.h"
#include "rsock/own.h"

#include <errno.h>
#include <sys/mman.h>

/* Other processes write it, too: never an index without a look at the size of the memory. */
struct fb_front {
    _Atomic uint64_t at; /* so many have been read, */
    _Atomic uint64_t n;  /* of so many */
    uint8_t byte[];
};

size_t rx_front_size(size_t n)
{
    return sizeof(struct fb_front) + n;
}

static uint64_t room(const struct fb_rx *rx)
{
    return rx->front_size > sizeof(struct fb_front) ? rx->front_size - sizeof(struct fb_front) : 0;
}

static uint64_t filled(const struct fb_rx *rx)
{
    uint64_t n = atomic_load(&rx->front->n), most = room(rx);

    return n < most ? n : most;
}

uint64_t rx_front_left(const struct fb_conn *c)
{
    const struct fb_rx *rx = &c->x->rx;
    uint64_t at, n;

    if (__builtin_expect(!rx->front, 1))
        return 0;
    at = atomic_load(&rx->front->at);
    n = filled(rx);
    return at < n ? n - at : 0;
}

/* The last of it is read: at once the half goes on, and whoever has not asked yet need not. */
static void last_read(struct fb_conn *c)
{
    const struct fb_rx *rx = &c->x->rx;

    if (rx->state == RX_sk && rx->handed && rx->end == 0 && rx->skip == 0 &&
        c->s.pub->rx == rx->V && !rx_front_left(c))
        rx_caught_up(c);
}

size_t rx_front_read(struct fb_conn *c, const struct iovec *v, int cnt, int flags)
{
    const struct fb_rx *rx = &c->x->rx;
    uint64_t at = atomic_load(&rx->front->at), end;
    struct iovec have;
    size_t n;

    do {
        end = filled(rx);
        if (at >= end)
            return 0;
        have = (struct iovec){rx->front->byte + at, (size_t)(end - at)};
        n = fb_iov_copy(v, cnt, &have, 1, have.iov_len, RSK_OUT_OF);
    } while (!(flags & MSG_PEEK) && !atomic_compare_exchange_strong(&rx->front->at, &at, at + n));
    if (!(flags & MSG_PEEK))
        last_read(c);
    return n;
}

/* The descriptor stays until rx_front_close: to close one of ours may wait for a fork, and here a
 * lock is held. */
static void unmap(struct fb_conn *c)
{
    struct fb_rx *rx = &c->x->rx;
    struct fb_front *front = rx->front;

    rx->front = NULL; /* first: a fork may come between */
    if (front && rx->front_ours)
        munmap(front, rx->front_size);
    rx->front_size = 0;
}

void rx_front_close(struct fb_conn *c)
{
    int fd;

    fb_lock(&c->x->rx.lock);
    fd = c->x->rx.front ? -1 : c->x->rx.front_fd - 1;
    if (fd >= 0)
        c->x->rx.front_fd = 0;
    rx_unlock(c);
    rsk_own_close(fd);
}

void rx_front_free(struct fb_conn *c)
{
    if (hold_for_good()) /* a filter may forbid to unmap it */
        return;
    unmap(c);
    rsk_own_close(c->x->rx.front_fd - 1);
    c->x->rx.front_fd = 0;
}

bool rx_front_over(struct fb_conn *c)
{
    if (rx_front_left(c))
        return false;
    if (c->x->rx.front && !hold_for_good()) {
        unmap(c);
        heir_front_over(c);
    }
    return true;
}

/* As a half that has been handed over, and has read all but what is in front:
 * rx_caught_up is next. */
static void only_front(struct fb_conn *c)
{
    struct fb_rx *rx = &c->x->rx;

    rx->F = rx->V = rx->E = c->s.pub->rx;
    rx->skip = 0;
    rx->handed = true;
    rx->state = RX_sk;
    atomic_store(&c->s.rx_gate, 1);
}

bool rx_front_no_switch(struct fb_conn *c)
{
    if (!rx_front_left(c))
        return false;
    only_front(c);
    conn_wake(c, RSK_RX | FB_EV_STATE);
    return true;
}

/* ---- the owner: progress thread */

/* At the end, and whoever reads on hears from the kernel how it was: nothing is missing, and no
 * error of it is ours to tell. */
static bool ends_well(const struct fb_conn *c)
{
    return c->x->rx.end == FB_KERNELS ||
           (c->x->rx.end == FB_EOF && !atomic_load(&c->x->swallowed) && !atomic_load(&c->x->told));
}

/* What can only be taken out, as much as there will be of it. rx lock held. */
static size_t due(struct fb_conn *c)
{
    const struct fb_rx *rx = &c->x->rx;
    uint64_t at = c->s.pub->rx;

    if (c->fd < 0 || rx->by_call || atomic_load(&c->x->peekers))
        return 0;
    if (rx->end != 0)
        return ends_well(c) && c->x->rail && at < rx->V ? (size_t)(rx->V - at) : 0;
    switch ((enum fb_rx_state)rx->state) {
    case RX_gS:
        return at < rx->S && !atomic_load(&c->s.rx_in) && sleepers_gone(c) ? (size_t)(rx->S - at)
                                                                           : 0;
    case RX_sk:
        return c->x->rail && at < rx->V - rx->skip ? (size_t)(rx->V - at) : 0;
    default:
        return 0;
    }
}

/* Of which so many are there. Urgent data stays where it is. rx lock held. */
static size_t there(struct fb_conn *c)
{
    struct iovec have[2];
    int inq;

    if (c->x->rx.state != RX_gS)
        return c->x->rail->wire->rx_peek(c->x->rail, have);
    inq = fb_io.at_mark(c->fd) ? 0 : fb_io.inq(c->fd); /* which counts up to a mark */
    return inq > 0 ? (size_t)inq : 0;
}

size_t rx_front_due(struct fb_conn *c)
{
    size_t n;

    fb_lock(&c->x->rx.lock);
    n = c->x->rx.front || c->x->rx.front_fd ? 0 : due(c);
    if (n && !there(c))
        n = 0;
    rx_unlock(c);
    return n;
}

/* One piece of them. 0: nothing is there. */
static ssize_t piece(struct fb_conn *c, struct iovec *v)
{
    size_t n = there(c);

    if (n == 0)
        return 0;
    return c->x->rx.state == RX_gS ? rx_kernel_read(c, c->fd, v, 1, n, 0)
                                   : rx_ring_read(c, c->x->rail, v, 1, n, 0);
}

bool rx_front_take(struct fb_conn *c, void *memory, size_t size, int fd)
{
    struct fb_rx *rx = &c->x->rx;
    bool first = false;
    ssize_t got = 0;
    size_t most;

    fb_lock(&rx->lock);
    if (memory && !rx->front && !rx->front_fd && due(c)) {
        rx->front_size = size;
        rx->front_fd = fd + 1;
        rx->front_ours = first = true;
        rx->front = memory;
        /* Who may yet read of it without asking cannot be known: this process never boards the
         * stream again. */
        conn_set(c, CF_PINNED);
        atomic_fetch_and(&c->s.flags, ~(uint32_t)CF_LENT);
    }
    most = due(c);
    while (rx->front && most > 0) {
        uint64_t n = filled(rx);
        struct iovec v = {rx->front->byte + n, (size_t)(room(rx) - n)};

        if (v.iov_len > most)
            v.iov_len = most;
        got = v.iov_len ? piece(c, &v) : 0;
        if (got <= 0)
            break;
        atomic_store(&rx->front->n, n + (uint64_t)got);
        most -= (size_t)got;
        log_info("stream %u: %zd unread bytes are taken out for a child that asks", c->s.slot, got);
        if (most == 0 && rx->state == RX_sk)
            rx->handed = true; /* what is beyond V comes by TCP */
    }
    if (got < 0 && got != -EAGAIN) { /* then the kernel has told us */
        rx_broken(c, "bytes that were there cannot be read any more");
        conn_untold(c, -ECONNRESET);
    }
    if (first || got > 0) {
        atomic_store(&c->x->anchor_news, 1);
        rx_anchor(c, c->fd);
        conn_wake(
            c,
            RSK_RX); /* who was woken by the kernel, and has not looked yet, finds nothing there */
    }
    rx_unlock(c);
    return first;
}

bool rx_front_alone(struct fb_conn *c)
{
    struct fb_rx *rx = &c->x->rx;
    uint64_t at;
    bool yes;

    fb_lock(&rx->lock);
    at = c->s.pub->rx;
    if (rx->end != 0)
        yes = rx->state == RX_gS || at >= rx->V;
    else
        yes = rx->state == RX_sk && rx->handed && at == rx->V && rx->skip == 0 &&
              !atomic_load(&rx->late);
    rx_unlock(c);
    return yes;
}

bool rx_front_look(struct fb_conn *c)
{
    bool over;

    fb_lock(&c->x->rx.lock);
    over = rx_front_over(c);
    if (over && c->fd >= 0)
        rx_anchor(c, c->fd);
    rx_unlock(c);
    return over;
}

bool rx_front_wait(struct fb_conn *c, uint64_t until)
{
    if (fb_plain_rx(&c->s))
        return true;
    while (!rx_front_look(c)) {
        /* An owner knows whether there is anybody else. */
        if (atomic_load(&c->x->rx.front_vain) || fb_io.now() >= until ||
            (conn_flag(c, CF_LINKED) && !heir_linked(c)) ||
            (c->fd >= 0 && fb_io.poll(c->fd, 0) & POLLHUP)) {
            atomic_store(&c->x->rx.front_vain, true);
            return false;
        }
        fb_io.wait(-1, 0, 500000);
    }
    rx_front_close(c);
    return true;
}

/* ---- a child: nobody else has its stream yet */

void rx_front_inherit(struct fb_conn *c, void *memory, size_t size, bool ours)
{
    struct fb_rx *rx = &c->x->rx;

    fb_lock(&rx->lock);
    rx->front_size = size;
    rx->front_ours = ours;
    rx->front = memory;
    only_front(c);
    conn_set(c, CF_PINNED | CF_ASKED);
    rx_unlock(c);
}

bool rx_front_known(struct fb_conn *mine, const struct fb_conn *parents)
{
    const struct fb_rx *rx = &parents->x->rx;

    if (!rx_front_left(parents))
        return false;
    rx_front_inherit(mine, rx->front, rx->front_size, false);
    return true;
}
