/*
 * shm_map.c - the memory of a shm rail: the sealed memfd and its mapping, with each ring
 * twice back to back, so that no piece of it ever splits at the wrap. Progress thread.
 */
#include <errno.h>
#include <linux/magic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/vfs.h>

#include "config/log.h"
#include "rsock/own.h"
#include "rsock/shm_bell.h"
#include "rsock/shm_ring.h"
#include "rsock/sys.h"

enum {
    RING_DEFAULT = 256 * 1024,
    RING_MAX = 64 * 1024 * 1024,
    SEALS = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL
};

uint32_t shm_ring_size(size_t wish)
{
    uint32_t size = 65536;

    if (!wish)
        return RING_DEFAULT;
    if (wish < size) {
        size = (uint32_t)sysconf(_SC_PAGESIZE);
        if (size < 4096)
            size = 4096;
    }
    while (size < wish && size < RING_MAX)
        size *= 2;
    return size;
}

/*
 * Does the kernel promise more memory than it has? Tried out, for where /proc/sys is hidden
 * (ProcSubset=pid of a systemd unit, a chroot): only such a kernel lets a mapping that is larger
 * than any host's memory be written to; any other ignores MAP_NORESERVE. The mapping becomes
 * writable after munlock, or all of it would be filled in a process that has called
 * mlockall(MCL_FUTURE). False also where a limit of the process's is in the way.
 */
static bool promised_anything(void)
{
    const size_t much = (size_t)1 << 45;
    long at =
        SYS6(SYS_mmap, NULL, much, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    bool yes;

    if (at < 0)
        return false;
    yes = SYS6(SYS_munlock, at, much, 0, 0, 0, 0) == 0 &&
          SYS6(SYS_mprotect, at, much, PROT_READ | PROT_WRITE, 0, 0, 0) == 0;
    SYS6(SYS_munmap, at, much, 0, 0, 0, 0);
    return yes;
}

/* Where the kernel promises no more memory than there is (vm.overcommit_memory 2), a file's pages
 * are counted when they are touched first, and what is too much then is SIGBUS, where malloc would
 * have said no. Asked once a second. */
bool shm_strict(void)
{
    static _Atomic uint64_t asked_at;
    static _Atomic bool was;
    uint64_t now = sys_now();
    bool strict = true;
    char mode = '2';
    int fd;

    if (atomic_load(&asked_at) && now - atomic_load(&asked_at) < 1000000000u)
        return atomic_load(&was);
    fd = rsk_own_fd(sys_open("/proc/sys/vm/overcommit_memory", O_RDONLY | O_CLOEXEC, 0));
    if (fd >= 0) {
        sys_read(fd, &mode, 1);
        rsk_own_close(fd);
        strict = mode == '2';
    } else if (fd == -ENOENT || fd == -EACCES) {
        strict = !promised_anything();
    } else {
        return atomic_load(&was); /* in want of something: the next one asks again */
    }
    atomic_store(&was, strict);
    atomic_store(&asked_at, now);
    return strict;
}

int shm_sealed_memfd(const char *name, size_t len)
{
    int fd = sys_hide_fd(sys_memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING)), err;

    if (fd < 0)
        return fd;
    err = sys_ftruncate(fd, (off_t)len);
    if (!err && shm_strict())
        err = (int)SYS6(SYS_fallocate, fd, 0, 0, len, 0, 0);
    if (!err)
        err = sys_fcntl(fd, F_ADD_SEALS, SEALS);
    if (err < 0) {
        sys_close(fd);
        return err;
    }
    return fd;
}

bool shm_sealed_good(int fd, size_t len)
{
    struct statfs fs = {0};
    struct stat st = {0};
    int seals = sys_fcntl(fd, F_GET_SEALS, 0);

    /* A file that can shrink under us is SIGBUS; one on a file system of the peer's making
     * (FUSE) can let any access to it wait for ever. */
    if (seals < 0 || (seals & SEALS) != SEALS)
        return false;
    if (SYS6(SYS_fstatfs, fd, &fs, 0, 0, 0, 0) || fs.f_type != TMPFS_MAGIC)
        return false;
    return !SYS6(SYS_newfstatat, fd, "", &st, AT_EMPTY_PATH, 0, 0) && S_ISREG(st.st_mode) &&
           st.st_size == (off_t)len;
}

int shm_memfd_new(uint32_t ring)
{
    return shm_sealed_memfd("railsock-ring", SHM_HEADER + 2 * (size_t)ring);
}

bool shm_memfd_good(int fd, uint32_t ring)
{
    if (ring < (uint32_t)sysconf(_SC_PAGESIZE) || ring > RING_MAX || (ring & (ring - 1)))
        return false;
    return shm_sealed_good(fd, SHM_HEADER + 2 * (size_t)ring);
}

static bool map_at(uint8_t *at, int fd, size_t off, size_t len)
{
    return mmap(at, len, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, (off_t)off) == at;
}

struct shm_rail *shm_rail_new(int memfd, uint32_t ring, bool initiator)
{
    /* header, ring 0 twice, ring 1 twice, staging: one range, so one unmap in a forked child */
    const size_t len = SHM_HEADER + 5 * (size_t)ring;
    struct shm_rail *r = aligned_alloc(SHM_LINE, sizeof *r);
    struct shm_header *h;
    uint8_t *p;

    if (!r)
        return NULL;
    memset(r, 0, sizeof *r);
    p = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED)
        goto no_memory;
    if (!map_at(p, memfd, 0, SHM_HEADER + (size_t)ring) ||
        !map_at(p + SHM_HEADER + ring, memfd, SHM_HEADER, 2 * (size_t)ring) ||
        !map_at(p + SHM_HEADER + 3 * (size_t)ring, memfd, SHM_HEADER + (size_t)ring, ring))
        goto no_map;
    rsk_own_map(&r->map, p, len);
    h = (struct shm_header *)(void *)p;
    r->out = &h->dir[initiator ? 0 : 1];
    r->in = &h->dir[initiator ? 1 : 0];
    r->out_data = p + SHM_HEADER + (initiator ? 0 : 2 * (size_t)ring);
    r->in_data = p + SHM_HEADER + (initiator ? 2 * (size_t)ring : 0);
    r->staging = p + SHM_HEADER + 4 * (size_t)ring;
    r->rx_step = ring / 4;
    r->base.wire = &rsk_shm_wire;
    r->base.tx_size = r->base.rx_size = ring;
    r->base.rx_word = &r->in->words.rx_word;
    r->base.tx_word = &r->out->words.tx_word;
    snprintf(r->base.where, sizeof r->base.where, "shm");
    return r;

no_map:
    munmap(p, len);
no_memory:
    free(r);
    return NULL;
}

void shm_rail_free(struct shm_rail *r)
{
    rsk_own_unmap(&r->map);
    free(r);
}
