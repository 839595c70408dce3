/*
 * shm_bell.c - dirty-bit page, and eventfd or socket.
 *
 * The writer: set the bit, set its word's summary bit, full fence, look at `armed`; only if
 * it is set write the eventfd, or send a byte, and then clear it.
 * The sleeper: set `armed`, full fence, look at the summary. So either the writer sees armed
 * or the sleeper sees the summary, and nobody sleeps through news.
 *
 * All processes of one user write to one page. One that is stopped between its look and its write
 * (a signal, a debugger, a frozen container) leaves `armed` set, so that the others wake the
 * sleeper. It may come back when the sleeper sleeps again; so each arming has a number, and it
 * clears none but the one that it saw. Two that look at the same time both write.
 *
 * The reader clears the summary word before the words under it. A writer between its two
 * steps then leaves a summary bit without a dirty bit, or is found by it the next time.
 * The page is writable by the peers: indices are bounded by its layout, a bit whose slot is
 * free is ignored, and all that a bad peer can do is wake us, or keep news from us of those who
 * share the bell: the other processes with its user's number.
 */
#include "rsock/shm_bell.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include "config/reason.h"
#include "rsock/fence.h"
#include "rsock/loop.h"
#include "rsock/own.h"
#include "rsock/shard_part.h"
#include "rsock/shm_own.h"
#include "rsock/shm_page.h"
#include "rsock/shm_wire.h"
#include "rsock/strange.h"
#include "rsock/sys.h"
#include "rsock/wire.h"

/*
 * The descriptor. Whether a write to an eventfd blocks is a property of the open file, which both
 * processes share: a peer can fill its own and clear O_NONBLOCK, and whoever writes to it then
 * sleeps for ever. Whom we trust (shm_peer.h) may do worse to us. From others we take a socket
 * alone, one end of a pair that the peer itself has made: whether a send blocks is said with each.
 * (A timerfd, rung by setting it to a moment that has passed, needs the processor's timer: several
 * times as long as a send.)
 *
 * Nobody reads an eventfd, so each write is an edge for everybody who watches it, and none takes it
 * from another. The bytes in a socket would fill it, so when the page's count says that there are
 * `batch`, the drain reads half as many. The count may be too high for a moment, by senders that
 * have counted and not sent yet (hence half, and not all but one), but never too low: bytes that
 * nobody counts would fill the socket in the end, and then there is no edge. Whoever arms has
 * drained before, also where only bytes are left that came after a drain had found their news
 * (bell_quiet). So when he sleeps there is room for a byte, or an edge for him, unless a peer has
 * filled the socket.
 *
 * A peer may send descriptors along with a byte, and closing them can take long: the progress
 * thread does that. The drain, mostly on an application's thread, only looks first. It reads no
 * byte that descriptors came with, and nothing more until the progress thread has taken these.
 *
 * A peer can also change what it was given; so what we tell ourselves goes by an eventfd that
 * nobody else has, in a part of its own.
 */

enum { BATCH_MOST = 64 };

/* A part's key is a user's number, and: */
#define OWN_PART    (1ull << 32) /* no bell, but the eventfd beside one (shm_own.h) */
#define OTHERS_PART (1ull << 33)

typedef _Atomic(struct rsk_rail *) rail_ptr;

struct shm_bell {
    struct rsk_shard_part part;
    struct rsk_shard *shard;
    struct shm_page *page;
    int page_fd;
    struct rsk_own_map map;
    int far;                   /* the peers' end, where part.fd is a socket; else -1 */
    uint32_t batch;            /* when it holds so many bytes the drain reads half as many */
    _Atomic uint32_t received; /* how many of page->sent have been read */
    _Atomic uint32_t armings;
    int own_fd;     /* an eventfd for what we tell ourselves: part.fd, or the other part's */
    bool other;     /* for peers that are not alike (shm_peer.h): a socket */
    bool far_given; /* peers may have it */
    _Atomic uint32_t users; /* its shard, and the jobs */
    struct rsk_job take_sent, end;
    _Atomic bool sent_along; /* descriptors come with the next byte: the progress thread takes it */
    uint64_t used[SHM_PAGE_WORDS];
    _Atomic(rail_ptr *) rails[SHM_PAGE_WORDS]; /* 64 each, made on need, kept */
};

/* Bells for other users: whoever has many users' numbers can make us have as many. */
static _Atomic unsigned others;
enum { OTHER_FDS = 4 }; /* what one costs */

/* ---- the part */

static struct shm_bell *bell_of(struct rsk_shard_part *p)
{
    return (struct shm_bell *)p;
}

static int drain_word(struct shm_bell *b, uint32_t w)
{
    rail_ptr *rails = atomic_load_explicit(&b->rails[w], memory_order_acquire);
    uint64_t bits;
    int n = 0;

    if (!atomic_load(&b->page->dirty[w]))
        return 0;
    bits = atomic_exchange_explicit(&b->page->dirty[w], 0, memory_order_acq_rel);
    for (; bits && rails; bits &= bits - 1) {
        struct rsk_rail *r =
            atomic_load_explicit(&rails[__builtin_ctzll(bits)], memory_order_acquire);
        unsigned events = r ? r->wire->poll(r, RSK_RX | RSK_CTL | RSK_TX_ASKED) : 0;

        /* Also when nothing holds: the ring has used up a wish to be told, which
         * must be renewed. */
        if (!r || !r->notify)
            continue;
        r->notify(r, events);
        n++;
    }
    return n;
}

static uint32_t bytes_left(struct shm_bell *b)
{
    return atomic_load_explicit(&b->page->sent, memory_order_relaxed) -
           atomic_load_explicit(&b->received, memory_order_relaxed);
}

static bool bytes_due(struct shm_bell *b)
{
    return b->far >= 0 && bytes_left(b) >= b->batch && !atomic_load(&b->sent_along);
}

static bool bell_quiet(struct rsk_shard_part *p)
{
    struct shm_bell *b = bell_of(p);

    return !atomic_load_explicit(&b->page->summary, memory_order_acquire) && !bytes_due(b);
}

static void unuse(struct shm_bell *b)
{
    if (atomic_fetch_sub(&b->users, 1) != 1)
        return;
    if (b->far_given)
        strange_close(b->part.fd);
    free(b);
}

/* What came with the bytes goes, and the byte that it came with. Nobody else reads meanwhile. */
static void take_sent(void *arg)
{
    struct shm_bell *b = arg;
    int fds[STRANGE_FDS], flags;
    char bytes[BATCH_MOST / 2];
    unsigned count;
    ssize_t n = strange_recv(b->part.fd, bytes, b->batch / 2, fds, &count, &flags);

    for (unsigned i = 0; i < count; i++)
        strange_close(fds[i]);
    if (n > 0)
        atomic_fetch_add_explicit(&b->received, (uint32_t)n, memory_order_relaxed);
    atomic_store(&b->sent_along, false);
    unuse(b);
}

/* How many bytes can be read that nothing came with. 0: something has, or there are none. */
static size_t plain_bytes(struct shm_bell *b, bool *along)
{
    char bytes[BATCH_MOST / 2];
    struct iovec v = {bytes, b->batch / 2};
    struct msghdr m = {.msg_iov = &v, .msg_iovlen = 1};
    ssize_t n = sys_recvmsg(b->part.fd, &m, MSG_PEEK | MSG_DONTWAIT);

    *along = n > 0 && m.msg_flags & MSG_CTRUNC; /* a look takes none, and ends there */
    return n > 0 && !*along ? (size_t)n : 0;
}

static void take_bytes(struct shm_bell *b)
{
    uint32_t left = bytes_left(b);
    char bytes[BATCH_MOST / 2];
    bool along;
    ssize_t n;

    if (!bytes_due(b))
        return;
    n = (ssize_t)plain_bytes(b, &along);
    if (along) {
        atomic_store(&b->sent_along, true);
        atomic_fetch_add(&b->users, 1);
        if (rsk_loop_post_job(&b->take_sent)) /* nobody else is there */
            take_sent(b);
        return;
    }
    if (n > 0)
        n = SYS6(SYS_recvfrom, b->part.fd, bytes, n, MSG_DONTWAIT, NULL, NULL);
    /* None at all where there should be so many: a peer lies, or many were killed on the way. */
    atomic_fetch_add_explicit(&b->received, n > 0 ? (uint32_t)n : left, memory_order_relaxed);
}

static int bell_drain(struct rsk_shard_part *p)
{
    struct shm_bell *b = bell_of(p);
    uint64_t words;
    int n = 0;

    words = atomic_load_explicit(&b->page->summary, memory_order_relaxed);
    if (words)
        words = atomic_exchange(&b->page->summary, 0);
    for (; words; words &= words - 1)
        n += drain_word(b, (uint32_t)__builtin_ctzll(words));
    take_bytes(b);
    return n;
}

static bool bell_arm(struct rsk_shard_part *p)
{
    struct shm_bell *b = bell_of(p);
    struct shm_page *page = b->page;
    uint32_t arming;

    do
        arming = atomic_fetch_add_explicit(&b->armings, 1, memory_order_relaxed) + 1;
    while (!arming);
    atomic_store_explicit(&page->armed, arming, memory_order_relaxed);
    rsk_fence(); /* pairs with the one in ring */
    return atomic_load_explicit(&page->summary, memory_order_relaxed) != 0;
}

static void bell_disarm(struct rsk_shard_part *p)
{
    struct shm_page *page = bell_of(p)->page;

    /* Usually whoever woke us has cleared it: no store into a line that others read. */
    if (atomic_load_explicit(&page->armed, memory_order_relaxed))
        atomic_store_explicit(&page->armed, 0, memory_order_relaxed);
}

static void bell_fire(struct rsk_shard_part *p)
{
    shm_page_fire(bell_of(p)->own_fd);
}

static void end_bell(void *bell)
{
    unuse(bell);
}

static void bell_free(struct rsk_shard_part *p)
{
    struct shm_bell *b = bell_of(p);

    rsk_own_unmap(&b->map);
    rsk_own_close(b->page_fd);
    rsk_own_close(b->far);
    if (!b->far_given)
        rsk_own_close(b->part.fd);
    for (uint32_t w = 0; w < SHM_PAGE_WORDS; w++)
        free(atomic_load_explicit(&b->rails[w], memory_order_relaxed));
    if (b->other)
        atomic_fetch_sub(&others, 1);
    /* What others have sent can take long, too, and whoever gives up the shard's last reference may
     * be an application's thread. */
    if (!b->far_given || rsk_loop_post_job(&b->end))
        unuse(b);
}

/* ---- ours */

/* A pair for peers of another user: our end, and theirs as b->far. Or -errno. */
static int socket_pair(struct shm_bell *b)
{
    enum { BYTE = 1024 /* what one costs at most, of what SO_SNDBUF says */ };
    enum { PASSRIGHTS = 83 /* SO_PASSRIGHTS, newer than the headers */ };
    const int on = 1, off = 0;
    int pair[2] = {-1, -1}, room, ours, err;

    rsk_own_enter();
    err = (int)SYS6(SYS_socketpair, AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair, 0,
                    0);
    ours = rsk_own_fd(err ? err : pair[0]);
    b->far = rsk_own_fd(err ? err : pair[1]);
    rsk_own_leave();
    if (b->far < 0) {
        rsk_own_close(ours);
        return b->far;
    }
    /* A byte that is sent as urgent stays one, and no descriptor comes with any, where the kernel
     * knows how to refuse them (6.16). */
    sys_setsockopt(ours, SOL_SOCKET, SO_OOBINLINE, &on, sizeof on);
    sys_setsockopt(ours, SOL_SOCKET, PASSRIGHTS, &off, sizeof off);
    room = strange_option(b->far, SO_SNDBUF) / (2 * BYTE);
    b->batch = room < 2 ? 2 : room > BATCH_MOST ? BATCH_MOST : (uint32_t)room;
    return ours;
}

int shm_bell_of(struct rsk_shard *shard, const struct shm_cred *cred, struct shm_bell **bell)
{
    const bool other = !cred->alike;
    const uint64_t key = cred->uid | (other ? OTHERS_PART : 0);
    struct rsk_shard_part *p = rsk_shard_find(shard, &rsk_shm_wire, key);
    struct shm_bell *b;
    int err;

    if (p) {
        *bell = bell_of(p);
        return 0;
    }
    if (other && OTHER_FDS * atomic_load(&others) >= rsk_own_most() / 2)
        return -EMFILE;
    b = calloc(1, sizeof *b);
    if (!b)
        return -ENOMEM;
    b->other = other;
    b->users = 1;
    b->take_sent = (struct rsk_job){.fn = take_sent, .arg = b};
    b->end = (struct rsk_job){.fn = end_bell, .arg = b};
    atomic_fetch_add(&others, other);
    b->page_fd = rsk_own_fd(shm_sealed_memfd("railsock-bell", SHM_PAGE_SIZE));
    b->far = -1;
    b->part.fd = other ? socket_pair(b) : rsk_own_fd(sys_eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    b->page = b->page_fd >= 0 ? shm_page_map(b->page_fd, &b->map) : NULL;
    b->shard = shard;
    b->part.wire = &rsk_shm_wire;
    b->part.key = key;
    b->part.drain = bell_drain;
    b->part.quiet = bell_quiet;
    b->part.arm = bell_arm;
    b->part.disarm = bell_disarm;
    b->part.fire = bell_fire;
    b->part.free = bell_free;
    err = b->page_fd < 0 ? b->page_fd : b->part.fd < 0 ? b->part.fd : b->page ? 0 : -ENOMEM;
    if (err) {
        bell_free(&b->part);
        return err;
    }
    b->own_fd = other ? shm_own_part(shard, key | OWN_PART) : b->part.fd;
    if (b->own_fd < 0) {
        err = b->own_fd;
        bell_free(&b->part);
        return err;
    }
    rsk_shard_add(shard, &b->part);
    *bell = b;
    return 0;
}

void shm_bell_fds(struct shm_bell *b, int *page, int *event)
{
    *page = b->page_fd;
    *event = b->far >= 0 ? b->far : b->part.fd;
    b->far_given = b->far >= 0;
}

int shm_bell_reserve(struct shm_bell *b)
{
    for (uint32_t w = 0; w < SHM_PAGE_WORDS; w++)
        if (~b->used[w]) {
            uint32_t i = (uint32_t)__builtin_ctzll(~b->used[w]);

            b->used[w] |= 1ull << i;
            return (int)(w * 64 + i);
        }
    return -ENOSPC;
}

int shm_bell_set(struct shm_bell *b, uint32_t slot, struct rsk_rail *rail)
{
    rail_ptr *rails = atomic_load_explicit(&b->rails[slot / 64], memory_order_relaxed);

    if (!rails) {
        rails = calloc(64, sizeof *rails);
        if (!rails)
            return -ENOMEM;
        atomic_store_explicit(&b->rails[slot / 64], rails, memory_order_release);
    }
    atomic_store_explicit(&rails[slot % 64], rail, memory_order_release);
    return 0;
}

void shm_bell_release(struct shm_bell *b, uint32_t slot)
{
    rail_ptr *rails = atomic_load_explicit(&b->rails[slot / 64], memory_order_relaxed);

    if (rails) {
        rsk_shard_lock(b->shard);
        atomic_store_explicit(&rails[slot % 64], NULL, memory_order_relaxed);
        rsk_shard_unlock(b->shard);
    }
    b->used[slot / 64] &= ~(1ull << (slot % 64));
}

void shm_bell_ring(struct shm_bell *b, uint32_t slot)
{
    uint32_t arming = shm_page_ring(b->page, slot);

    if (!arming)
        return;
    shm_page_fire(b->own_fd);
    shm_page_woken(b->page, arming);
}

void shm_bell_after_fork_child(void)
{
    shm_peer_bells_forget();
    atomic_store(&others, 0);
}
