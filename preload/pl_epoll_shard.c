/*
 * pl_epoll_shard.c - the descriptors of an instance's shard, of which there may be any
 * number: in the kernel's instance, and, where its streams are also waited for elsewhere,
 * watched by the progress thread. What has failed, for want of descriptors, of watches or of
 * memory, is tried again.
 *
 * The walks over the shard's parts: whoever adds one, retags, unweaves or tries again has the
 * shard's own lock for that, and comes before or after the others. ctl may be held.
 */
#include "preload/pl_epoll.h"

#include <errno.h>
#include <stdlib.h>

#include "rsock/loop.h"
#include "rsock/own.h"
#include "rsock/sys.h"

enum { AGAIN_NS = 20000000 };

/* ---- in the kernel's instance */

static int ctl_ours(struct pl_epoll *ep, int op, int fd)
{
    struct epoll_event ev = {.events = EPOLLIN | EPOLLET};

    ev.data.u64 = pl_cookie_data(ep, PL_COOKIE_WAKE);
    return sys_epoll_ctl(ep->kfd, op, fd, &ev);
}

int pl_shard_weave(struct pl_epoll *ep, int fd)
{
    int err = ctl_ours(ep, EPOLL_CTL_ADD, fd);

    return err == -EEXIST ? 0 : err;
}

static bool weave(void *ep, int fd)
{
    return atomic_load(&((struct pl_epoll *)ep)->unwoven) || pl_shard_weave(ep, fd) == 0;
}

/* What has come meanwhile is told when it joins. */
static void weave_again(void *arg)
{
    struct rsk_shard *shard = arg; /* reference */

    if (rsk_shard_each(shard, weave) || !rsk_timer_add(AGAIN_NS, weave_again, shard))
        rsk_shard_put(shard);
}

static void weave_later(void *shard)
{
    if (!rsk_timer_add(AGAIN_NS, weave_again, shard))
        rsk_shard_put(shard);
}

static void share_fds(struct pl_share *);

void pl_shard_fd_added(void *arg, int fd)
{
    struct pl_epoll *ep = arg;
    struct pl_share *share;

    if (!weave(ep, fd) && rsk_loop_post(weave_later, rsk_shard_get(ep->shard)) < 0)
        rsk_shard_put(ep->shard);
    share = atomic_load(&ep->share);
    if (share)
        share_fds(share);
}

static bool unweave(void *arg, int fd)
{
    struct pl_epoll *ep = arg;

    sys_epoll_ctl(ep->kfd, EPOLL_CTL_DEL, fd, NULL);
    return true;
}

void pl_shard_unweave(struct pl_epoll *ep)
{
    /* One that is being added is walked afterwards, a later one sees it. */
    atomic_store(&ep->unwoven, true);
    if (ep->efd >= 0)
        sys_epoll_ctl(ep->kfd, EPOLL_CTL_DEL, ep->efd, NULL);
    if (ep->shard)
        (void)rsk_shard_each(ep->shard, unweave);
}

static bool retag(void *ep, int fd)
{
    ctl_ours(ep, EPOLL_CTL_MOD, fd);
    return true;
}

void pl_shard_retag(struct pl_epoll *ep)
{
    if (ep->efd >= 0)
        ctl_ours(ep, EPOLL_CTL_MOD, ep->efd);
    if (ep->shard)
        (void)rsk_shard_each(ep->shard, retag);
}

/* ---- drained by the progress thread as well */

struct shared_fd {
    struct shared_fd *next;
    int fd;  /* the shard's */
    int own; /* what is watched, a number of its own; -1 */
    struct rsk_watch *watch;
};

/* The progress thread's, but for its making. */
struct pl_share {
    struct rsk_shard *shard; /* reference */
    struct rsk_job look;
    struct rsk_timer *again;
    struct shared_fd *fds;
    bool lacking; /* no memory for one */
    bool armed;
};

static void share_drain(void *arg, uint32_t events)
{
    struct pl_share *share = arg;

    (void)events;
    do
        rsk_shard_drain(share->shard);
    while (rsk_shard_arm(share->shard) && (rsk_shard_disarm(share->shard), true));
    /* One count of arming stays; the one before goes. */
    if (share->armed)
        rsk_shard_disarm(share->shard);
    share->armed = true;
}

static struct pl_share *looking; /* the progress thread, for note() */

static void note(void *arg)
{
    struct pl_share *share = looking;
    struct shared_fd *f = share->fds;
    int fd = (int)(intptr_t)arg;

    while (f && f->fd != fd)
        f = f->next;
    if (f)
        return;
    f = malloc(sizeof *f);
    if (!f) {
        share->lacking = true;
        return;
    }
    *f = (struct shared_fd){share->fds, fd, -1, NULL};
    share->fds = f;
}

static bool watch(struct pl_share *share, struct shared_fd *f)
{
    if (f->watch)
        return true;
    /* A number of its own: the wire may have the same descriptor watched by itself, and an epoll
     * instance takes it only once. */
    if (f->own < 0)
        f->own = rsk_own_fd(sys_fcntl(f->fd, F_DUPFD_CLOEXEC, 3));
    if (f->own >= 0)
        f->watch = rsk_watch_fd(f->own, EPOLLIN | EPOLLET, true, share_drain, share);
    return f->watch;
}

static void share_again(void *arg);

/* Watches those that are not yet. Until all are, the shard is drained each time that
 * this is tried. */
static void share_look(void *arg)
{
    struct pl_share *share = arg;
    bool all = true;

    share->lacking = false;
    looking = share;
    rsk_shard_fds(share->shard, note);
    for (struct shared_fd *f = share->fds; f; f = f->next)
        all &= watch(share, f);
    if ((!all || share->lacking) && !share->again)
        share->again = rsk_timer_add(AGAIN_NS, share_again, share);
    share_drain(share, 0);
}

static void share_again(void *arg)
{
    ((struct pl_share *)arg)->again = NULL;
    share_look(arg);
}

static void share_fds(struct pl_share *share)
{
    (void)rsk_loop_post_job(&share->look);
}

/* Instance and rails are gone: nobody's news will come. Progress thread; after every share_look
 * that was posted, which is only done in the instance's life. */
static void share_end(void *arg)
{
    struct pl_share *share = arg;
    struct shared_fd *f;

    if (share->again)
        rsk_timer_cancel(share->again);
    while ((f = share->fds)) {
        share->fds = f->next;
        rsk_unwatch(f->watch);
        rsk_own_close(f->own);
        free(f);
    }
    if (share->armed)
        rsk_shard_disarm(share->shard);
    rsk_shard_put(share->shard);
    free(share);
}

/* Whoever drops the last reference but ours may be inside a drain of this very shard: later. */
static void share_lonely(void *arg)
{
    (void)rsk_loop_post(share_end, arg);
}

/*
 * Until instance and rails are gone: a rail on this shard cannot be moved to another one. Only
 * instances have it whose streams are also waited for with poll, or in another instance, and those
 * that end before their rails.
 */
void pl_epoll_share(struct pl_epoll *ep)
{
    struct pl_share *share, *none = NULL;

    /* Without a progress thread there has been no rail. One that rests does what is asked of
     * it afterwards. */
    if (!ep->shard || atomic_load(&ep->share) || !rsk_shard_common())
        return;
    share = calloc(1, sizeof *share);
    if (!share)
        return;
    share->look = (struct rsk_job){.fn = share_look, .arg = share};
    share->shard = rsk_shard_get(ep->shard);
    if (!atomic_compare_exchange_strong(&ep->share, &none, share)) {
        rsk_shard_put(share->shard);
        free(share);
        return;
    }
    rsk_shard_on_lonely(share->shard, share_lonely, share); /* the instance holds one as well */
    share_fds(share);
}
