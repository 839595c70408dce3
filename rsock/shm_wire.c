/*
 * shm_wire.c - the shm wire's operations table, and the assembly of a rail from memory,
 * bells and shards. Progress thread.
 */
#include "rsock/shm_wire.h"

#include <errno.h>
#include <stdio.h>
#include <sys/un.h>

#include "config/reason.h"
#include "rsock/loop.h"
#include "rsock/shard.h"
#include "rsock/shm_bell.h"
#include "rsock/shm_diag.h"
#include "rsock/own.h"
#include "rsock/sys.h"
#include "rsock/unix_names.h"

socklen_t shm_rdv_name(struct sockaddr_storage *ss, uint32_t uid, uint16_t port, uint32_t pid,
                       uint16_t peer)
{
    struct sockaddr_un *un = (struct sockaddr_un *)ss;
    int n;

    un->sun_family = AF_UNIX;
    un->sun_path[0] = 0;
    n = snprintf(un->sun_path + 1, sizeof un->sun_path - 1, "railsock.%u.%u.%u.%u", uid, port, pid,
                 peer);
    return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)n);
}

static int take_slot(struct rsk_shard *shard, const struct shm_cred *cred, struct shm_slot *slot)
{
    struct shm_bell *b;
    int i = shm_bell_of(shard, cred, &b);

    if (i < 0)
        return i == -EMFILE || i == -ENFILE ? RSN_LIMIT_FD : RSN_NO_MEMORY;
    i = shm_bell_reserve(b);
    if (i < 0)
        return RSN_BUDGET;
    slot->bell = b;
    slot->index = (uint32_t)i;
    return 0;
}

static void drop_bells(struct shm_rail *r)
{
    if (r->my_data.bell)
        shm_bell_release(r->my_data.bell, r->my_data.index);
    if (r->my_ctl.bell && r->my_ctl.bell != r->my_data.bell)
        shm_bell_release(r->my_ctl.bell, r->my_ctl.index);
    r->my_data.bell = r->my_ctl.bell = NULL;
    rsk_shard_put(r->base.shard);
    rsk_shard_put(r->ctl_shard);
    r->base.shard = r->ctl_shard = NULL;
}

int shm_rail_my_bells(struct shm_rail *r, struct rsk_shard *data, const struct shm_cred *cred)
{
    struct rsk_shard *common = rsk_shard_common();
    int reason;

    /* A peer that does not fill its file, or makes holes in it, decides that we ask the kernel for
     * the memory when we touch it, which is SIGBUS where there is none (shm_map.c). */
    if (!common || (!cred->trusted && shm_strict()))
        return RSN_NO_MEMORY;
    drop_bells(r);
    r->base.shard = rsk_shard_get(data ? data : common);
    r->ctl_shard = rsk_shard_get(common);
    reason = take_slot(r->base.shard, cred, &r->my_data);
    if (reason)
        return reason;
    if (r->base.shard != common)
        return take_slot(common, cred, &r->my_ctl);
    r->my_ctl = r->my_data;
    return 0;
}

void shm_rail_offer(const struct shm_rail *r, struct shm_fds *fds, uint32_t *data, uint32_t *ctl)
{
    *data = r->my_data.index;
    *ctl = r->my_ctl.index;
    shm_bell_fds(r->my_data.bell, &fds->fd[fds->n], &fds->fd[fds->n + 1]);
    fds->n += 2;
    if (r->my_ctl.bell == r->my_data.bell)
        return;
    shm_bell_fds(r->my_ctl.bell, &fds->fd[fds->n], &fds->fd[fds->n + 1]);
    fds->n += 2;
}

int shm_rail_peer_bells(struct shm_rail *r, struct shm_fds *fds, int first, uint32_t data,
                        uint32_t ctl, struct shm_cred cred)
{
    const int n = fds->n - first;
    struct shm_peer_bell *b;
    int reason;

    if ((n != 2 && n != 4) || data >= SHM_BELL_SLOTS || ctl >= SHM_BELL_SLOTS)
        return RSN_PEER_PROTOCOL;
    reason = shm_peer_bell_get(shm_fds_take(fds, first), shm_fds_take(fds, first + 1), &cred, &b);
    if (reason)
        return reason;
    r->peer_data.bell = b;
    r->peer_data.index = data;
    if (n == 2)
        shm_peer_bell_again(b);
    else
        reason = shm_peer_bell_get(shm_fds_take(fds, first + 2), shm_fds_take(fds, first + 3),
                                   &cred, &b);
    if (reason)
        return reason;
    r->peer_ctl.bell = b;
    r->peer_ctl.index = ctl;
    r->base.peer_pid = cred.pid;
    r->base.guarded = !cred.trusted;
    return 0;
}

void shm_rail_give(struct shm_rail *r, void (*give)(void *arg, struct rsk_rail *), void *arg)
{
    r->giving = true;
    give(arg, &r->base);
    r->giving = false;
    if (r->doomed) {
        shm_destroy(&r->base);
        return;
    }
    /*
     * Only now, so that whoever drains finds notify() set. What the peer told meanwhile was
     * ignored as news of a free slot: tell ourselves, that the next drain looks at everything.
     */
    if (shm_bell_set(r->my_data.bell, r->my_data.index, &r->base) ||
        shm_bell_set(r->my_ctl.bell, r->my_ctl.index, &r->base))
        shm_fail(r, RSN_NO_MEMORY);
    shm_bell_ring(r->my_data.bell, r->my_data.index);
    if (r->my_ctl.bell != r->my_data.bell)
        shm_bell_ring(r->my_ctl.bell, r->my_ctl.index);
}

void shm_destroy(struct rsk_rail *rail)
{
    struct shm_rail *r = shm_of(rail);

    if (!rail)
        return;
    if (r->giving) {
        r->doomed = true;
        return;
    }
    drop_bells(r);
    shm_peer_bell_put(r->peer_data.bell);
    shm_peer_bell_put(r->peer_ctl.bell);
    shm_rail_free(r);
}

static int shm_usable(void)
{
    int fd;

    if (!shm_diag_usable())
        return RSN_NO_NETLINK;
    /* Where there is no /proc (a bare chroot) nobody can be found. */
    rsk_own_enter();
    fd = sys_open(RSK_UNIX_LIST, O_RDONLY | O_CLOEXEC, 0);
    if (fd >= 0)
        sys_close(fd);
    rsk_own_leave();
    return fd < 0 ? RSN_NO_PEER_LIB : 0;
}

static void after_fork_child(void)
{
    shm_bell_after_fork_child();
    shm_diag_after_fork_child();
    shm_accept_after_fork_child();
}

static __attribute__((constructor)) void shm_load(void)
{
    rsk_at_fork_child(after_fork_child);
}

const struct rsk_wire rsk_shm_wire = {
    .name = "shm",
    .path = 1,
    .outlives_sender = true,
    .much = 3,
    .read_in_place = true,
    .usable = shm_usable,
    .listen = shm_listen,
    .unlisten = shm_unlisten,
    .shut = shm_shut,
    .connect = shm_connect,
    .on_room = shm_on_room,
    .destroy = shm_destroy,
    .tx_start = shm_tx_start,
    .tx_space = shm_tx_space,
    .tx_put = shm_tx_put,
    .tx_give = shm_tx_give,
    .tx_open = shm_tx_open,
    .tx_push = shm_tx_push,
    .tx_freed = shm_tx_freed,
    .tx_kept = shm_tx_kept,
    .tx_stop = shm_tx_stop,
    .rx_start = shm_rx_start,
    .rx_peek = shm_rx_peek,
    .rx_consume = shm_rx_consume,
    .rx_take = shm_rx_take,
    .rx_freeze = shm_rx_freeze,
    .ctl_send = shm_ctl_send,
    .ctl_recv = shm_ctl_recv,
    .tx_ends = shm_tx_ends,
    .tx_fate = shm_tx_fate,
    .poll = shm_poll,
    .arm = shm_arm,
    .kill = shm_kill,
};
