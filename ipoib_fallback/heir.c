/*
 * heir.c - what a fork leaves to two processes.
 *
 * The owner of a stream is the process that tracks it; at a fork nothing happens to it but
 * that a link is made: a pair of sockets, of which the child, and whoever it forks, holds one end
 * until exec or exit. The owner's file of counters (pub.h) stays mapped in the child.
 *
 *   child, before it uses an inherited stream      owner, before it attaches a rail
 *     lent |= FOREIGN, and looks at BUSY             lent |= BUSY, and looks at FOREIGN
 *     not BUSY: the kernel alone has it              FOREIGN: no rail
 *     BUSY: asks over the link; the owner leaves the rail and answers when it has
 *
 * Both are one atomic operation on the same byte: one of the two sees the other. What was lent
 * comes back when the link ends. An owner that closes its copy says so over the link, and whether
 * anybody else has one: then the child may board the stream itself, with the counters that its
 * memory has from the fork, if the kernel's agree.
 *
 * Owner: application threads fork, the progress thread serves. Child: any thread.
 */
#include "ipoib_fallback/heir.h"
#include "ipoib_fallback/hold.h"

#include "config/env.h"
#include "config/log.h"
#include "ipoib_fallback/pubfile.h"
#include "rsock/loop.h"
#include "rsock/own.h"
#include "rsock/shm_msg.h"
#include "rsock/strange.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { MAX_LINKS = 1024, PRUNE_AT = 16, NOTES_MOST = 16 };

_Atomic uint32_t heir_forks;
_Atomic uint32_t heir_over;
_Atomic unsigned heir_blind;
static unsigned under_way; /* forks that have begun, and not ended; under links_lock */
/* It has forked a child without a link, because it had no stream of its own yet, or its
 * streams never board. */
static _Atomic bool unlinked;
static struct fb_lock links_lock;
static struct heir_link *links;
static unsigned n_links;
static void *spare; /* memory for links */
static _Atomic bool serving;
/* heir_forks when that began: a child before it goes on as another program without a word */
static uint32_t unserved;

/* For the application's threads: a handler that forks would wait for the lock that its own thread
 * has. Blocked by a system call, for a moment. */
static uint64_t links_take(void)
{
    uint64_t before = sys_block_signals();

    fb_lock(&links_lock);
    return before;
}

static void links_give(uint64_t before)
{
    fb_unlock(&links_lock);
    sys_restore_signals(before);
}

/* ---- the owner: lending; what children ask is heir_ask.c's */

bool heir_take(struct fb_conn *c)
{
    if (!(atomic_fetch_or(&c->s.pub->lent, FB_LENT_BUSY) & FB_LENT_FOREIGN))
        return true;
    atomic_fetch_and(&c->s.pub->lent, (uint8_t)~FB_LENT_BUSY);
    conn_reason(c, RSN_SHARED);
    return false;
}

void heir_settled(struct fb_conn *c)
{
    atomic_fetch_and(&c->s.pub->lent, (uint8_t)~FB_LENT_BUSY);
}

/* ---- the owner: links */

/* Does the child of that fork have the stream? None that was forked after it was closed, which may
 * be long before it is let go. */
static bool has(const struct heir_link *l, struct fb_conn *c)
{
    uint32_t then = conn_flag(c, CF_CLOSED) ? atomic_load(&c->x->forks_then) : 0;

    return l->seq > c->born && (!then || l->seq <= then);
}

static bool held_but(struct fb_conn *c, const struct heir_link *but)
{
    for (struct heir_link *l = links; l; l = l->next)
        if (l != but && has(l, c))
            return true;
    return false;
}

/* Has it been given to another process for good? By this one, or by a child that is another program
 * by now, and whose link has ended. */
static bool away(struct fb_conn *c)
{
    return atomic_load(&c->s.pub->lent) & FB_LENT_AWAY;
}

bool heir_held(struct fb_conn *c)
{
    if (!conn_shared(c) || conn_flag(c, CF_SHARED))
        return conn_shared(c);
    return away(c) || heir_may_have(c);
}

bool heir_may_have(struct fb_conn *c)
{
    uint64_t signals = links_take();
    bool yes = c->born < unserved || held_but(c, NULL);

    links_give(signals);
    return yes;
}

bool heir_linked(struct fb_conn *c)
{
    uint64_t signals = links_take();
    bool yes = held_but(c, NULL);

    links_give(signals);
    return yes;
}

/* Nobody of that child's family is left: what they had is ours alone again. */
static void give_back(struct fb_conn *c, void *arg)
{
    const struct heir_link *gone = arg;

    if ((atomic_load(&c->s.pub->lent) & (FB_LENT_FOREIGN | FB_LENT_AWAY)) != FB_LENT_FOREIGN ||
        held_but(c, gone) || !has(gone, c))
        return;
    atomic_fetch_and(&c->s.pub->lent, (uint8_t)~FB_LENT_FOREIGN);
    if (conn_flag(c, CF_SHARED) || (conn_flag(c, CF_PINNED) && !conn_flag(c, CF_LENT)))
        return;
    log_info("stream %u: the child that had it is gone", c->s.slot);
    if (c->s.pub->reason == RSN_SHARED)
        conn_reason(c, RSN_NEW);
    atomic_fetch_and(&c->s.flags, ~(uint32_t)(CF_PINNED | CF_LENT | CF_ASKED | CF_LOOKS));
}

static void unlink_link(struct heir_link *gone)
{
    struct heir_link **at = &links;

    while (*at && *at != gone)
        at = &(*at)->next;
    if (*at) {
        *at = gone->next;
        n_links--;
    }
}

void *heir_piece(void **list, size_t size)
{
    enum { BLOCK = 4096 };
    char *p = *list;

    if (!p) {
        p = mmap(NULL, BLOCK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (p == MAP_FAILED)
            return NULL;
        for (size_t at = BLOCK / size * size - size; at > 0; at -= size)
            heir_piece_back(list, p + at);
        return p;
    }
    memcpy(list, p, sizeof *list);
    return p;
}

void heir_piece_back(void **list, void *piece)
{
    memcpy(piece, list, sizeof *list);
    *list = piece;
}

/* links_lock held. */
static struct heir_link *new_link(void)
{
    struct heir_link *l = heir_piece(&spare, sizeof *l);

    if (l)
        *l = (struct heir_link){.fd = -1};
    return l;
}

static void old_link(struct heir_link *l)
{
    heir_piece_back(&spare, l);
}

static void link_gone(struct heir_link *l)
{
    int fd = l->fd;

    rsk_unwatch(l->watch);
    fb_lock(&links_lock);
    unlink_link(l);
    conn_each(give_back, l);
    old_link(l);
    fb_unlock(&links_lock);
    strange_close(fd); /* a child's that may have had other rights */
}

static void on_link(void *arg, uint32_t events)
{
    struct heir_link *l = arg;

    (void)events;
    /* The thread has other work as well: the link stays readable. */
    for (int i = 0; i < NOTES_MOST; i++) {
        struct heir_note n = {0};
        struct shm_fds fds;
        ssize_t got = shm_msg_recv(l->fd, &n, sizeof n, &fds);

        if (got == -EAGAIN || got == -EINTR)
            return;
        /* more than a question has, or no descriptor is free: ours have been closed */
        if (got == -EPROTO)
            continue;
        if (got <= 0) {
            link_gone(l);
            return;
        }
        if (fds.n == 1 && got == sizeof n && n.what >= HEIR_ASK_STREAM && n.what <= HEIR_ASK_EPOLL)
            heir_asked(&n, shm_fds_take(&fds, 0), l->seq);
        else
            shm_fds_close(&fds);
    }
}

static void watch_links(void *unused)
{
    (void)unused;
    fb_lock(&links_lock);
    for (struct heir_link *l = links; l; l = l->next)
        if (!l->watch && l->fd >= 0)
            l->watch = rsk_watch_fd(l->fd, POLLIN, false, on_link, l);
    fb_unlock(&links_lock);
}

void heir_serve(void)
{
    struct fb_pub_file *file = fb_pub_head();

    if (file)
        atomic_store(&file->serving, 1);
    if (atomic_exchange(&serving, true))
        return;
    fb_lock(&links_lock);
    unserved = atomic_load(&heir_forks);
    fb_unlock(&links_lock);
    watch_links(NULL);
    /* Children that came first have only left their marks. */
    for (unsigned i = 0; file && i < FB_PUB_FOREIGN; i++)
        if (atomic_load(&file->foreign_epoll[i]))
            (void)heir_epoll_asked(atomic_load(&file->foreign_epoll[i]));
}

void heir_let_go(struct fb_conn *c)
{
    struct heir_note n = {.what = HEIR_LET_GO, .slot = c->s.slot, .gen = c->gen};
    uint64_t signals;

    if (atomic_load(&heir_forks) == c->born)
        return;
    n.counts = (struct heir_counts){c->s.pub->tx, c->s.pub->rx, conn_ktx(c), conn_krx(c)};
    signals = links_take();
    for (struct heir_link *l = links; l; l = l->next) {
        if (!has(l, c))
            continue;
        n.alone = !conn_flag(c, CF_SHARED) && !away(c) && !held_but(c, l);
        sys_send(l->fd, &n, sizeof n, MSG_DONTWAIT | MSG_NOSIGNAL);
    }
    links_give(signals);
}

/* ---- the fork itself */

static void oldest(struct fb_conn *c, void *arg)
{
    uint32_t *born = arg;

    if (c->born < *born)
        *born = c->born;
}

static bool has_ended(const struct heir_link *l)
{
    struct pollfd p = {l->fd, 0, 0};
    struct timespec now = {0, 0};

    return sys_ppoll(&p, 1, &now, NULL) > 0 && (p.revents & POLLHUP);
}

static struct heir_link *pruned; /* and not closed yet; links_lock */

/* Links whose children are gone, or hold no stream which is still here, are of no use. links_lock
 * held; without a progress thread nobody else would end them. */
static void prune(void)
{
    uint32_t born = UINT32_MAX;
    struct heir_link **at = &links, *l;

    if (n_links < PRUNE_AT || under_way || atomic_load(&serving))
        return;
    conn_each(oldest, &born);
    while ((l = *at)) {
        bool ended = has_ended(l);

        if (l->seq > born && !ended) {
            at = &l->next;
            continue;
        }
        *at = l->next;
        n_links--;
        if (ended)
            conn_each(give_back, l);
        l->next = pruned;
        pruned = l;
    }
}

/* They may have something in them that takes its time: without the lock. */
static void close_pruned(struct heir_link *l)
{
    for (struct heir_link *next; l; l = next) {
        int fd = l->fd;
        uint64_t signals = links_take();

        next = l->next;
        old_link(l);
        links_give(signals);
        if (hold_for_good()) /* a filter may forbid what that does */
            rsk_own_close(fd);
        else
            strange_close(fd);
    }
}

/* links_lock held. */
static struct heir_link *link_up_child(int *theirs)
{
    struct heir_link *l;
    int pair[2] = {-1, -1};

    prune();
    l = n_links < MAX_LINKS ? new_link() : NULL;
    if (!l)
        return NULL;
    rsk_own_enter();
    if (SYS6(SYS_socketpair, AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair, 0,
             0) == 0) {
        l->fd = rsk_own_fd(pair[0]);
        /* Noted as ours, so that a child which another thread makes meanwhile closes it; this
         * one keeps it. */
        *theirs = rsk_own_fd(pair[1]);
    }
    rsk_own_leave();
    if (l->fd < 0 || *theirs < 0) {
        rsk_own_close(l->fd);
        rsk_own_close(*theirs);
        *theirs = -1;
        old_link(l);
        return NULL;
    }
    return l;
}

static void go_blind(struct fb_fork *f)
{
    f->blind = true;
    atomic_fetch_add(&heir_blind, 1);
}

bool fb_fork_begin(struct fb_fork *f)
{
    struct heir_link *l, *gone;
    uint64_t signals;

    *f = (struct fb_fork){.theirs = -1};
    /* Where there is never a rail the child may use what it likes. */
    if (!fb_ever_tracked() || cfg.stream.mode == CFG_TCP || cfg.stream.board_never) {
        atomic_store(&unlinked, true);
        go_blind(f);
        return true;
    }
    signals = links_take();
    l = link_up_child(&f->theirs);
    gone = pruned;
    pruned = NULL;
    if (l) {
        l->seq = atomic_fetch_add(&heir_forks, 1) + 1;
        atomic_store(&fb_pub_head()->forks, l->seq);
        l->next = links;
        links = l;
        n_links++;
        under_way++;
        f->link = l;
    }
    links_give(signals);
    close_pruned(gone);
    if (!l)
        go_blind(f);
    return l != NULL;
}

static struct rsk_job watch_job = {.fn = watch_links};

void fb_fork_parent(struct fb_fork *f)
{
    uint64_t signals;

    if (f->blind)
        atomic_fetch_sub(&heir_blind, 1);
    if (f->theirs < 0)
        return;
    signals = links_take();
    if (--under_way == 0)
        atomic_store(&heir_over, atomic_load(&heir_forks));
    links_give(signals);
    /* If the fork has failed, this is the link's end. */
    rsk_own_close(f->theirs);
    if (atomic_load(&serving))
        rsk_loop_post_job(&watch_job);
}

struct heir_link *heir_siblings(struct heir_link *own, uint32_t *seq)
{
    *seq = own->seq;
    return links == own ? own->next : links;
}

bool heir_has_forked(void)
{
    return atomic_load(&unlinked);
}

void heir_forget(void)
{
    heir_asks_forget();
    atomic_store(&unlinked, false);
    links = NULL;
    n_links = 0;
    spare = NULL; /* the siblings' are still read */
    atomic_store(&watch_job.posted, false);
    links_lock = (struct fb_lock){0};
    atomic_store(&heir_forks, 0);
    atomic_store(&heir_over, 0);
    atomic_store(&heir_blind, 0);
    under_way = 0;
    unserved = 0;
    atomic_store(&serving, false);
}

bool heir_elsewhere(struct fb_conn *c)
{
    if (atomic_load(&c->s.pub->lent) & FB_LENT_FOREIGN)
        return true;
    return given_elsewhere(c) || (c->x->heritage && !heir_alone(c->x->heritage, c));
}

bool fb_epoll_elsewhere(uint64_t id)
{
    struct fb_pub_file *file = fb_pub_head();

    if (!file)
        return false;
    for (unsigned i = 0; i < FB_PUB_FOREIGN; i++)
        if (atomic_load(&file->foreign_epoll[i]) == id)
            return true;
    return atomic_load(&file->foreign_epolls) != 0;
}

void fb_epoll_gone(uint64_t id)
{
    struct fb_pub_file *file = fb_pub_head();

    for (unsigned i = 0; file && i < FB_PUB_FOREIGN; i++) {
        uint64_t gone = id;

        atomic_compare_exchange_strong(&file->foreign_epoll[i], &gone, 0);
    }
}
