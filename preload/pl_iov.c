/*
 * pl_iov.c - checks the buffers of a call that a rail serves, as the kernel would have
 * done. Addresses that are wrong but not NULL fault in the copy.
 */
#include "preload/pl_own.h"

#include <errno.h>
#include <limits.h>

int pl_iov_fit_any(const struct iovec **v, int *cnt, struct iovec *one, int too_many, size_t *total)
{
    size_t sum = 0;
    int i;

    *total = 0;
    if (*cnt < 0 || *cnt > IOV_MAX)
        return too_many;
    if (*cnt > 0 && !*v)
        return -EFAULT;
    for (i = 0; i < *cnt; i++) {
        size_t n = (*v)[i].iov_len;

        if (n > SSIZE_MAX)
            return -EINVAL;
        if (!(*v)[i].iov_base && n > 0)
            return -EFAULT;
        if (n > PL_RW_MAX - sum) {
            /* A short count is what the kernel gives here, too; only a whole first element has to
             * be shortened for that. */
            if (i == 0) {
                one->iov_base = (*v)[0].iov_base;
                one->iov_len = sum = PL_RW_MAX;
                *v = one;
                i = 1;
            }
            *cnt = i;
            break;
        }
        sum += n;
    }
    *total = sum;
    return 0;
}
