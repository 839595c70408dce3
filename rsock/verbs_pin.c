/*
 * verbs_pin.c - how much memory may be pinned. The kernel counts it against RLIMIT_MEMLOCK, which
 * the application may need for itself: a quarter of it is left. Progress thread.
 *
 * What is pinned is not only what is registered here. The queues of mlx5, mlx4, hns, bnxt_re,
 * irdma and erdma are the process's memory, which their drivers have the kernel pin (ib_umem_get);
 * those of rxe and siw are the kernel's own. So what the kernel says of the process (VmPin) is
 * what counts, the program's own as well; and where that cannot be seen, in a chroot without
 * /proc, an estimate of the queues beside what is registered. What is about to be made is
 * estimated in any case:
 *
 *   a queue pair          VB_QP_PINS: mlx5's has 128 entries of 512 bytes to send (192 of overhead,
 *                         and 256 inline), 128 of 16 bytes to receive, and whole pages
 *                         (mlx5_calc_send_wqe, mlx5_calc_rcv_wqe in its verbs.c). The others' are
 *                         smaller.
 *   a completion queue    VB_CQE_PINS for each entry: mlx5's, of 64 bytes (get_cqe_size)
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "rsock/sys.h"
#include "rsock/verbs_int.h"

static size_t pinned, queues;

/* What the kernel counts; SIZE_MAX if it does not say. */
static size_t counted(void)
{
    static const char line[] = "\nVmPin:";
    char text[4096];
    int fd = rsk_own_fd(sys_open("/proc/thread-self/status", O_RDONLY | O_CLOEXEC, 0));
    ssize_t n;
    char *at;

    if (fd < 0)
        return SIZE_MAX;
    n = sys_read(fd, text, sizeof text - 1);
    rsk_own_close(fd);
    text[n > 0 ? n : 0] = 0;
    at = strstr(text, line);
    return at ? strtoul(at + sizeof line - 1, NULL, 10) * 1024 : SIZE_MAX;
}

static bool fits(size_t n)
{
    struct rlimit l;
    size_t kernel;

    if (getrlimit(RLIMIT_MEMLOCK, &l) < 0 || l.rlim_cur == RLIM_INFINITY)
        return true;
    /* Who has the capability is not asked for the limit; root of a user namespace of his own is. */
    if (sys_capable(CAP_IPC_LOCK) && sys_in_first_users())
        return true;
    kernel = counted();
    return (kernel == SIZE_MAX ? pinned + queues : kernel) + n <= l.rlim_cur / 4 * 3;
}

/* What parting rails have is wanted now. */
static bool make_room(size_t n)
{
    if (fits(n))
        return true;
    vb_bye_all();
    if (fits(n))
        return true;
    errno = ENOMEM;
    return false;
}

struct ibv_mr *vb_pin(struct ibv_pd *pd, struct rsk_own_map *m, int access)
{
    struct ibv_mr *mr;

    if (!make_room(m->len))
        return NULL;
    /* Before and until after it is so: a child that has it all the same keeps it, which is
     * the lesser evil. */
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

bool vb_pin_queue(size_t n)
{
    if (!make_room(n))
        return false;
    queues += n;
    return true;
}

void vb_unpin_queue(size_t n)
{
    queues -= n;
}

void vb_pin_forget(void)
{
    pinned = queues = 0;
}
