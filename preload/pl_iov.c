/*
 * pl_iov.c - checks the buffers of a call that a rail serves, as the kernel would have
 * done. Addresses that are wrong but not NULL fault in the copy.
 */
#include "preload/pl_own.h"

#include "rsock/own.h"
#include "rsock/sys.h"

#include <errno.h>
#include <limits.h>
#include <string.h>

/* Sockets do since Linux 6.5: asked of one that has nothing. */
bool pl_iov_nowait(void)
{
    static _Atomic int8_t known; /* 1 yes, -1 no */
    char byte;
    struct iovec v = {&byte, 1};
    int fd;

    if (atomic_load(&known) || fb_filtered())
        return atomic_load(&known) >= 0;
    fd = rsk_own_fd(sys_socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    if (fd < 0)
        return true;
    atomic_store(&known, SYS6(SYS_preadv2, fd, &v, 1, -1, -1, RWF_NOWAIT) == -EOPNOTSUPP ? -1 : 1);
    rsk_own_close(fd);
    return atomic_load(&known) > 0;
}

int pl_iov_fit_any(const struct iovec **v, int *cnt, struct iovec *one, int too_many, size_t *total)
{
    size_t sum = 0;
    bool full = false;
    int fits = 0;

    *total = 0;
    if (*cnt < 0 || *cnt > IOV_MAX)
        return too_many;
    if (*cnt > 0 && !*v)
        return -EFAULT;
    for (int i = 0; i < *cnt; i++) {
        size_t n = (*v)[i].iov_len;

        if (n > SSIZE_MAX)
            return -EINVAL;
        if (full)
            continue;
        if (!(*v)[i].iov_base && n > 0)
            return -EFAULT;
        full = n > PL_RW_MAX - sum;
        if (!full) {
            sum += n;
            fits = i + 1;
        }
    }
    /* A short count is what the kernel gives here, too; only one that has nothing before it has to
     * be shortened for that. */
    if (full && sum == 0) {
        *one = (struct iovec){(*v)[fits].iov_base, sum = PL_RW_MAX};
        *v = one;
        fits = 1;
    }
    *cnt = fits;
    *total = sum;
    return 0;
}
