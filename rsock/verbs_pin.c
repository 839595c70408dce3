/*
 * verbs_pin.c - how much memory may be registered. The kernel counts it against RLIMIT_MEMLOCK, which
 * the application may need for itself: a quarter of it is left. Progress thread.
 */
#include <errno.h>
#include <linux/capability.h>
#include <sys/resource.h>

#include "rsock/sys.h"
#include "rsock/verbs_int.h"

static size_t pinned;

/* CAP_IPC_LOCK: the limit is not asked. */
static bool unlimited(void)
{
    struct __user_cap_header_struct head = {_LINUX_CAPABILITY_VERSION_3, 0};
    struct __user_cap_data_struct data[_LINUX_CAPABILITY_U32S_3] = {0};

    return SYS6(SYS_capget, &head, data, 0, 0, 0, 0) == 0 &&
           (data[CAP_TO_INDEX(CAP_IPC_LOCK)].effective & CAP_TO_MASK(CAP_IPC_LOCK));
}

static bool fits(size_t n)
{
    struct rlimit l;

    if (getrlimit(RLIMIT_MEMLOCK, &l) < 0 || l.rlim_cur == RLIM_INFINITY)
        return true;
    return pinned + n <= l.rlim_cur / 4 * 3 || unlimited();
}

struct ibv_mr *vb_pin(struct ibv_pd *pd, void *p, size_t n, int access)
{
    struct ibv_mr *mr;

    if (!fits(n)) {
        errno = ENOMEM;
        return NULL;
    }
    mr = vdl.reg_mr(pd, p, n, access);
    if (mr)
        pinned += mr->length;
    return mr;
}

void vb_unpin(struct ibv_mr *mr)
{
    if (!mr)
        return;
    pinned -= mr->length;
    vdl.dereg_mr(mr);
}

void vb_pin_forget(void)
{
    pinned = 0;
}
