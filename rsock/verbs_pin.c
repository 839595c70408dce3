/*
 * verbs_pin.c - how much memory may be registered. The kernel counts it against RLIMIT_MEMLOCK, which
 * the application may need for itself: a quarter of it is left. Progress thread.
 */
#include <errno.h>
#include <sys/resource.h>

#include "rsock/sys.h"
#include "rsock/verbs_int.h"

static size_t pinned;

static bool fits(size_t n)
{
    struct rlimit l;

    if (getrlimit(RLIMIT_MEMLOCK, &l) < 0 || l.rlim_cur == RLIM_INFINITY)
        return true;
    /* Who has the capability is not asked for the limit; root of a user namespace of his own is. */
    return pinned + n <= l.rlim_cur / 4 * 3 || (sys_capable(CAP_IPC_LOCK) && sys_in_first_users());
}

struct ibv_mr *vb_pin(struct ibv_pd *pd, struct rsk_own_map *m, int access)
{
    struct ibv_mr *mr;

    if (!fits(m->len))
        vb_bye_all(); /* what parting rails have is wanted now */
    if (!fits(m->len)) {
        errno = ENOMEM;
        return NULL;
    }
    /* Before and until after it is so: a child that has it all the same keeps it, which is the lesser evil. */
    atomic_store(&m->left_out, vb_dl_leaves_out());
    mr = vdl.reg_mr(pd, m->addr, m->len, access);
    if (mr)
        pinned += mr->length;
    else
        atomic_store(&m->left_out, false);
    return mr;
}

void vb_unpin(struct ibv_mr *mr, struct rsk_own_map *m)
{
    if (!mr)
        return;
    pinned -= mr->length;
    vdl.dereg_mr(mr);
    atomic_store(&m->left_out, false);
}

void vb_pin_forget(void)
{
    pinned = 0;
}
