/*
 * loop_common.c - the common shard, which the progress thread drains after every wait, and the
 * descriptors by which it is told that there is something in it.
 */
#include "rsock/loop.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/epoll.h>

#include "rsock/loop_backend.h"
#include "rsock/shard.h"

enum { AGAIN_NS = 20000000 };

static struct rsk_shard *_Atomic common;
static struct rsk_watch *common_watches; /* linked by next_dead; the thread's */

static void on_common(void *arg, uint32_t events)
{
    (void)arg, (void)events; /* the thread drains after every wait */
}

static void watch_common(void *arg)
{
    /* An anchor watch because those can be edge-triggered: nobody ever reads these. Not
     * unwatched while the thread runs: parts are never removed. */
    struct rsk_watch *w =
        rsk_watch_fd((int)(intptr_t)arg, EPOLLIN | EPOLLET, true, on_common, NULL);

    /* no memory, or too many watches of this user's; the common shard is never given back */
    if (!w) {
        (void)rsk_timer_add(AGAIN_NS, watch_common, arg);
        return;
    }
    w->next_dead = common_watches;
    common_watches = w;
}

static void common_fd_added(void *arg, int fd)
{
    (void)arg;
    if (rsk_loop_is_self())
        watch_common((void *)(intptr_t)fd);
    else
        rsk_loop_post(watch_common, (void *)(intptr_t)fd);
}

struct rsk_shard *rsk_shard_common(void)
{
    return atomic_load_explicit(&common, memory_order_acquire);
}

int loop_common_open(void)
{
    struct rsk_shard *shard;

    if (rsk_shard_common())
        return 0;
    shard = rsk_shard_new(common_fd_added, NULL);
    if (!shard)
        return -ENOMEM;
    atomic_store_explicit(&common, shard, memory_order_release);
    return 0;
}

void loop_common_watch(void)
{
    rsk_shard_fds(rsk_shard_common(), watch_common);
}

void loop_common_free(void)
{
    struct rsk_watch *w;

    while ((w = common_watches)) {
        common_watches = w->next_dead;
        free(w);
    }
}

void loop_common_forget(void)
{
    atomic_store(&common, NULL);
    common_watches = NULL;
}
