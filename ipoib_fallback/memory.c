/*
 * memory.c - memory of the application's that need not be any, or not any more. Any thread.
 */
#include "ipoib_fallback/fb.h"

#include "rsock/sys.h"

#include <errno.h>
#include <string.h>
#include <sys/uio.h>

bool fb_copy(void *to, const void *from, size_t n, bool in)
{
    struct iovec ours = {in ? to : (void *)from, n}, theirs = {in ? (void *)from : to, n};
    long got = fb_filtered() ? -EPERM
                             : SYS6(in ? SYS_process_vm_readv : SYS_process_vm_writev, sys_gettid(),
                                    &ours, 1, &theirs, 1, 0);

    if (got >= 0 || got == -EFAULT)
        return got == (long)n;
    memcpy(to, from, n);
    return true;
}
