/*
 * old_kernel.c - for LD_PRELOAD, before the library: a kernel that does not know how soon an
 * adapter is to repeat what is not acknowledged (RDMA_OPTION_ID_ACK_TIMEOUT, Linux 5.3), so that
 * the adapter's own time holds, 15 s with rxe. librdmacm writes its commands to a device.
 */
#include <dlfcn.h>
#include <errno.h>
#include <rdma/rdma_user_cm.h>
#include <string.h>
#include <sys/types.h>

ssize_t write(int fd, const void *buf, size_t n)
{
    static ssize_t (*next)(int, const void *, size_t);
    struct {
        struct rdma_ucm_cmd_hdr h;
        struct rdma_ucm_set_option o;
    } cmd;

    if (n == sizeof(cmd)) {
        memcpy(&cmd, buf, n);
        if (cmd.h.cmd == RDMA_USER_CM_CMD_SET_OPTION && cmd.h.in == sizeof(cmd.o) &&
            cmd.o.level == RDMA_OPTION_ID && cmd.o.optname == RDMA_OPTION_ID_ACK_TIMEOUT) {
            errno = ENOSYS;
            return -1;
        }
    }
    if (!next)
        next = (ssize_t(*)(int, const void *, size_t))dlsym(RTLD_NEXT, "write");
    return next(fd, buf, n);
}
