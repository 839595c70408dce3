/*
 * verbs_host.c - what is looked at before anything of RDMA is opened: whether the host has a
 * device, whether the program uses one itself, and whether libibverbs would complain on the
 * program's stderr. iWARP does not count. A no is good for a second: every stream to another host
 * asks, and where there is a device of no use, as in many a container, each would look at all of
 * the program's descriptors. Progress thread.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include "config/log.h"
#include "config/reason.h"
#include "rsock/verbs_int.h"

struct dirent64 {
    uint64_t ino;
    int64_t off;
    uint16_t reclen;
    uint8_t type;
    char name[];
};

#define REFUSED_NS 1000000000u

/* Whether there is such a name in a folder, which has none if it cannot be read; or
 * -EMFILE, -ENFILE. */
static int any(const char *folder, bool (*such)(int fd, const char *name))
{
    _Alignas(8) char buf[1024] = {0};
    int fd = rsk_own_fd(sys_open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0));
    bool found = false;
    long n;

    if (fd < 0)
        return fd == -EMFILE || fd == -ENFILE ? fd : 0;
    while (!found && (n = SYS6(SYS_getdents64, fd, buf, sizeof buf, 0, 0, 0)) > 0)
        for (long at = 0; at < n;) {
            const struct dirent64 *d = (const void *)(buf + at);

            found |= d->name[0] != '.' && such(fd, d->name);
            at += d->reclen;
        }
    rsk_own_close(fd);
    return found;
}

static const char sys_devices[] = "/sys/class/infiniband";

/* The file says "4: RNIC" (node_type_show() in drivers/infiniband/core/sysfs.c). What cannot be
 * read is for who opens the device to find out. */
static bool is_iwarp(int folder, const char *name)
{
    char file[80], type[2] = {0};
    int fd;

    snprintf(file, sizeof file, "%.64s/node_type", name);
    fd = rsk_own_fd((int)SYS6(SYS_openat, folder, file, O_RDONLY | O_CLOEXEC, 0, 0, 0));
    if (fd < 0)
        return false;
    (void)sys_read(fd, type, sizeof type);
    rsk_own_close(fd);
    return memcmp(type, "4:", sizeof type) == 0;
}

static bool is_of_use(int folder, const char *name)
{
    return !is_iwarp(folder, name);
}

int vb_host_has_device(void)
{
    int found = any(sys_devices, is_of_use);

    return found > 0 ? 0 : found < 0 ? RSN_LIMIT_FD : RSN_NO_RDMA_ON_ROUTE;
}

int vb_host_may_listen(void)
{
    int found = any(sys_devices, is_iwarp);

    if (found > 0)
        log_info("verbs: an iWARP device would take the TCP ports that are listened at");
    return found > 0 ? -ENODEV : found < 0 ? -EMFILE : 0;
}

/* A link of /proc/thread-self/fd. Only character devices are worth a look at where it leads: there
 * may be a hundred thousand sockets. */
static bool is_rdma(int folder, const char *link)
{
    static const char devices[] = "/dev/infiniband/";
    char to[sizeof devices - 1] = {0};
    struct stat st = {0};
    int fd = atoi(link);

    return !rsk_own_has(fd) && SYS6(SYS_fstat, fd, &st, 0, 0, 0, 0) == 0 && S_ISCHR(st.st_mode) &&
           SYS6(SYS_readlinkat, folder, link, to, sizeof to, 0, 0) == (long)sizeof to &&
           memcmp(to, devices, sizeof to) == 0;
}

static int program_uses(void)
{
    static bool uses; /* what it has from librdmacm may outlive its descriptors */
    /* Of the process itself there is no such folder once its first thread has ended. */
    int found = uses ? 1 : any("/proc/thread-self/fd", is_rdma);

    if (found > 0 && !uses)
        log_info("verbs: the program has an RDMA device open itself");
    uses |= found > 0;
    return found < 0 ? RSN_LIMIT_FD : uses ? RSN_OWN_RDMA : 0;
}

static int complaint(void)
{
    struct rlimit l = {0};
    int fd;

    /* check_memlock_limit() in its init.c; a rail would find no room either. */
    if (sys_geteuid() != 0 && SYS6(SYS_prlimit64, 0, RLIMIT_MEMLOCK, NULL, &l, 0, 0) == 0 &&
        l.rlim_cur <= 32768) {
        log_info("verbs: the limit of locked memory has no room for a rail");
        return RSN_NO_MEMORY;
    }
    /* read_config() in its dynamic_driver.c, which finds its drivers there. */
    fd = rsk_own_fd(sys_open("/etc/libibverbs.d", O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0));
    if (fd < 0) {
        log_info("verbs: no drivers, /etc/libibverbs.d cannot be read: %s", strerror(-fd));
        return fd == -EMFILE || fd == -ENFILE ? RSN_LIMIT_FD : RSN_NO_VERBS;
    }
    rsk_own_close(fd);
    return 0;
}

static struct {
    int reason;
    unsigned uid; /* another user may be let in */
    uint64_t until;
} refused;

void vb_host_refused(int reason)
{
    refused.reason = reason;
    refused.uid = sys_geteuid();
    refused.until = sys_now() + REFUSED_NS;
}

int vb_host_refuses(void)
{
    int reason = refused.reason;

    if (reason && sys_now() < refused.until && sys_geteuid() == refused.uid)
        return reason;
    reason = program_uses();
    if (!reason)
        reason = complaint();
    vb_host_refused(reason);
    return reason;
}
