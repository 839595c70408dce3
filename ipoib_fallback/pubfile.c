/*
 * pubfile.c - see pubfile.h. The file is sparse and is given its blocks before it is
 * touched, because a write into a hole of a full tmpfs is SIGBUS.
 */
#include "ipoib_fallback/pubfile.h"

#include "config/env.h"
#include "config/log.h"
#include "rsock/own.h"
#include "rsock/sys.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>

#define GIVEN_SIZE (FB_PUB_GIVEN_SLOTS * sizeof(uint64_t))
#define WHOLE      (FB_PUB_GIVEN + GIVEN_SIZE)

static struct fb_pub_file *file;
static int file_fd = -1;
static char file_path[96];
static uint64_t pid_namespace;
static bool named;        /* the file is there, under its name */
static uint32_t reserved; /* slots that have their blocks, when the descriptor is closed */
static bool given_room;

static size_t read_small(const char *path, char *buf, size_t size)
{
    ssize_t n = 0;
    int fd;

    rsk_own_enter();
    fd = sys_open(path, O_RDONLY | O_CLOEXEC, 0);
    if (fd >= 0) {
        n = sys_read(fd, buf, size - 1);
        sys_close(fd);
    }
    rsk_own_leave();
    buf[n > 0 ? n : 0] = 0;
    return n > 0 ? (size_t)n : 0;
}

static void describe(struct fb_pub_file *f)
{
    char stat[512], *p;
    size_t n = read_small("/proc/self/comm", f->program, sizeof(f->program));

    while (n > 0 && f->program[n - 1] == '\n')
        f->program[--n] = 0;
    read_small("/proc/self/stat", stat, sizeof(stat));
    p = strrchr(stat, ')'); /* the name may hold spaces; fields are counted after it */
    for (int field = 2; p && field < 22; field++)
        p = strchr(p + 1, ' ');
    f->start_time = p ? strtoull(p + 1, NULL, 10) : 0;
    f->pid_namespace = pid_namespace;
    f->pid = (uint32_t)sys_getpid();
    f->version = FB_PUB_VERSION;
    f->magic = FB_PUB_MAGIC;
}

/* One that says nothing yet is just being made, perhaps by a process of another namespace; after so
 * many seconds whoever made it has been killed over it. tools/stat_read.c has the same. */
enum { BEING_MADE = 60 };

/* n: what could be read of it. */
static bool is_dead(const struct fb_pub_file *f, long n, uint32_t pid, const struct stat *st)
{
    struct timespec now;

    if (n >= 0 && !f->magic) {
        clock_gettime(CLOCK_REALTIME, &now);
        return S_ISREG(st->st_mode) && now.tv_sec - st->st_mtim.tv_sec > BEING_MADE;
    }
    return n == (long)sizeof(*f) && f->magic == FB_PUB_MAGIC && f->version == FB_PUB_VERSION &&
           f->pid == pid && f->pid_namespace == pid_namespace;
}

static void remove_dead(int dirfd, uint32_t pid)
{
    struct stat seen, now;
    struct fb_pub_file f = {0};
    char name[12];
    long n;
    int fd;

    if (SYS6(SYS_kill, pid, 0, 0, 0, 0, 0) != -ESRCH)
        return;
    snprintf(name, sizeof(name), "%u", pid);
    fd = (int)SYS6(SYS_openat, dirfd, name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC, 0, 0, 0);
    if (fd < 0)
        return;
    /* A new process of that number, in between, has a new file. In another namespace it
     * may be alive. */
    n = SYS6(SYS_pread64, fd, &f, sizeof(f), 0, 0, 0);
    if (fstat(fd, &seen) == 0 && is_dead(&f, n, pid, &seen) &&
        fstatat(dirfd, name, &now, AT_SYMLINK_NOFOLLOW) == 0 && seen.st_ino == now.st_ino &&
        SYS6(SYS_kill, pid, 0, 0, 0, 0, 0) == -ESRCH)
        SYS6(SYS_unlinkat, dirfd, name, 0, 0, 0, 0);
    sys_close(fd);
}

/* A process that is killed leaves its file. Each new one looks at a few of those that are there,
 * chosen at random: so those of dead processes stay few, however many are killed, and nobody
 * looks at many. */
static void remove_some_dead(int dirfd)
{
    enum { LOOKS = 8 };
    _Alignas(struct dirent64) char buf[1024] = {0};
    uint32_t chosen[LOOKS], seen = 0;
    uint64_t random = sys_now() | 1;
    long n;

    while (pid_namespace && (n = SYS6(SYS_getdents64, dirfd, buf, sizeof(buf), 0, 0, 0)) > 0) {
        for (long at = 0; at < n; at += ((struct dirent64 *)(buf + at))->d_reclen) {
            unsigned long pid = strtoul(((struct dirent64 *)(buf + at))->d_name, NULL, 10);
            uint32_t place = seen;

            if (pid == 0 || pid > INT32_MAX)
                continue;
            if (seen++ >= LOOKS) {
                random = random * 6364136223846793005u + 1442695040888963407u;
                place = (uint32_t)((random >> 33) % seen);
            }
            if (place < LOOKS)
                chosen[place] = (uint32_t)pid;
        }
    }
    for (uint32_t i = 0; i < seen && i < LOOKS; i++)
        remove_dead(dirfd, chosen[i]);
}

enum whose { NOBODYS, OURS, OTHERS };

/* Whose is the file of that name? Another namespace's may have a process of the same number:
 * containers that share /dev/shm. What there is of ours is from before an exec, or an
 * earlier process's. */
static enum whose whose_is(int dirfd, const char *name)
{
    struct fb_pub_file f = {0};
    int fd =
        (int)SYS6(SYS_openat, dirfd, name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK, 0, 0, 0);
    bool whole, others;

    if (fd < 0)
        return fd == -ENOENT ? NOBODYS : OURS;
    whole = SYS6(SYS_pread64, fd, &f, sizeof(f), 0, 0, 0) == (long)sizeof(f) && f.magic;
    others = fb_pub_namespace(&f) && fb_pub_namespace(&f) != pid_namespace;
    sys_close(fd);
    /* One that is just being made does not say yet. */
    return pid_namespace && (!whole || others) ? OTHERS : OURS;
}

/* In that folder, which must be ours alone: another user may have made one of that name before. Its
 * descriptor, or < 0; *taken: the name is another namespace's. */
static int open_in(const char *dir, bool *taken)
{
    unsigned uid = sys_geteuid();
    int dirfd, fd = -1;
    enum whose whose;
    struct stat st;

    snprintf(file_path, sizeof(file_path), "%s/%d", dir, sys_getpid());
    SYS6(SYS_mkdirat, AT_FDCWD, dir, 0700, 0, 0, 0);
    dirfd = sys_open(dir, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC, 0);
    if (dirfd < 0)
        return dirfd;
    if (fstat(dirfd, &st) == 0 && st.st_uid == uid && (st.st_mode & 0777) == 0700) {
        const char *name = strrchr(file_path, '/') + 1;

        remove_some_dead(dirfd);
        whose = whose_is(dirfd, name);
        if (whose == OURS)
            SYS6(SYS_unlinkat, dirfd, name, 0, 0, 0, 0);
        if (whose != OTHERS)
            fd = (int)SYS6(SYS_openat, dirfd, name,
                           O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600, 0, 0);
        *taken = whose == OTHERS || fd == -EEXIST; /* in this moment */
    }
    sys_close(dirfd);
    return fd;
}

static int open_file(void)
{
    bool taken = false;
    char dir[72];
    int fd;

    pid_namespace = fb_pub_own_namespace();
    snprintf(dir, sizeof(dir), FB_PUB_DIR, sys_geteuid());
    fd = open_in(dir, &taken);
    if (!taken)
        return fd;
    snprintf(dir, sizeof(dir), FB_PUB_DIR ".%llu", sys_geteuid(),
             (unsigned long long)pid_namespace);
    taken = false;
    return open_in(dir, &taken);
}

#define PAGE 4096u

/* A tmpfs of Linux 6.1 gives up for any signal that is pending, and for what io_uring has to do on
 * this thread, which no handler shows, and takes back what it had: so in smaller pieces then. */
static bool allocate(size_t at, size_t len)
{
    size_t piece = len;

    while (len > 0) {
        size_t n = piece < len ? piece : len;
        long r = SYS6(SYS_fallocate, file_fd, 0, at, n, 0, 0);

        if (r == -EINTR) {
            piece = n > PAGE ? n / 2 : n;
        } else if (r < 0) {
            return false;
        } else {
            at += n;
            len -= n;
        }
    }
    return true;
}

/* Under a limit of 512 descriptors or less none of ours can stay open: the file gets room at once
 * for as many streams as there can be. */
static uint32_t reserve(void)
{
    const uint32_t most = 512 + 64;

    return allocate(0, sizeof(struct fb_pub_file) + most * sizeof(struct fb_pub)) &&
                   allocate(FB_PUB_RAILS, most * sizeof(struct fb_pub_rail)) &&
                   allocate(FB_PUB_GIVEN, GIVEN_SIZE)
               ? most
               : 0;
}

/* Gives the file a second name for `railsock run --report`, which reads it when the process
 * has ended, however it ends. A name may be taken by what this process was before it
 * executed the program. */
static void keep(void)
{
    char name[sizeof(cfg.keep) + 24];
    long r = -EEXIST;

    for (unsigned i = 0; cfg.keep[0] && i < 16 && r == -EEXIST; i++) {
        snprintf(name, sizeof(name), "%s/%d.%u", cfg.keep, sys_getpid(), i);
        r = SYS6(SYS_linkat, AT_FDCWD, file_path, AT_FDCWD, name, 0, 0);
    }
}

/* The file's descriptor is out of the program's way, or is not needed any more. False: there is no
 * room for all that might be. */
static bool hide(void)
{
    int hidden = rsk_own_fd(sys_fcntl(file_fd, F_DUPFD_CLOEXEC, 512));

    reserved = 0;
    if (hidden < 0)
        return (reserved = reserve()) != 0;
    sys_close(file_fd);
    file_fd = hidden;
    return true;
}

/* The kernel would answer with SIGXFSZ, which ends programs. */
static bool may_be_long(void)
{
    struct rlimit most = {RLIM_INFINITY, RLIM_INFINITY};

    SYS6(SYS_prlimit64, 0, RLIMIT_FSIZE, NULL, &most, 0, 0);
    return most.rlim_cur >= WHOLE;
}

static bool make(size_t need)
{
    void *p = MAP_FAILED;

    file_fd = open_file();
    if (file_fd >= 0 && may_be_long() && sys_ftruncate(file_fd, (off_t)WHOLE) == 0)
        p = mmap(NULL, WHOLE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, file_fd, 0);
    if (p != MAP_FAILED && !(allocate(0, need) && hide())) {
        munmap(p, WHOLE);
        p = MAP_FAILED;
    }
    if (p == MAP_FAILED) {
        if (file_fd >= 0) {
            sys_close(file_fd);
            sys_unlink(file_path);
        }
        file_fd = -1;
        reserved = 0;
        log_warn("%s cannot be made: railsock stat does not show this process", file_path);
        p = mmap(NULL, WHOLE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE,
                 -1, 0);
        if (p == MAP_FAILED)
            return false;
    }
    file = p;
    describe(file);
    named = file_fd >= 0;
    if (named)
        keep();
    if (reserved) {
        sys_close(file_fd);
        file_fd = -1;
    }
    return true;
}

bool fb_pub_grow(uint32_t n)
{
    size_t need = sizeof(struct fb_pub_file) + (size_t)n * sizeof(struct fb_pub);

    if (!file) {
        bool made;

        rsk_own_enter();
        made = make(need);
        rsk_own_leave();
        if (!made)
            return false;
    } else if ((reserved && n > reserved) || (file_fd >= 0 && !allocate(0, need))) {
        return false;
    }
    file->nslots = n;
    return true;
}

struct fb_pub *fb_pub_slot(uint32_t slot)
{
    return &file->slot[slot];
}

struct fb_pub_rail *fb_pub_rail(uint32_t slot)
{
    size_t at = FB_PUB_RAILS + slot * sizeof(struct fb_pub_rail);

    if ((reserved && slot >= reserved) ||
        (file_fd >= 0 && !allocate(at, sizeof(struct fb_pub_rail))))
        return NULL;
    return (struct fb_pub_rail *)((char *)file + at);
}

static void more(_Atomic uint64_t *sum, uint64_t n)
{
    atomic_store_explicit(sum, atomic_load_explicit(sum, memory_order_relaxed) + n,
                          memory_order_release);
}

void fb_pub_closed(const struct fb_pub *p, const struct fb_pub_rail *r)
{
    unsigned reason = p->reason;

    atomic_thread_fence(memory_order_release); /* after FB_PUB_CLOSING */
    if (r && r->boarded_at)
        more(&file->closed_boarded, 1);
    else if (reason < 64)
        more(&file->closed_by_reason[reason], 1);
    more(&file->closed_tx, p->tx);
    more(&file->closed_rx, p->rx);
    if (r) {
        more(&file->closed_rail_tx, r->rail_tx);
        more(&file->closed_rail_rx, r->rail_rx);
        more(&file->closed_switches, r->switches);
    }
    /* Last: who has seen it has the others. */
    more(&file->closed, 1);
}

fb_pub_given *fb_pub_given_here(void)
{
    if (!given_room && file_fd >= 0 && !allocate(FB_PUB_GIVEN, GIVEN_SIZE))
        return NULL;
    given_room = true;
    return (fb_pub_given *)((char *)file + FB_PUB_GIVEN);
}

/* The file of that name in that folder, if both are this user's, and it is that process's. */
static int open_theirs(const char *dir, int32_t pid, uint64_t namespace)
{
    struct fb_pub_file head = {0};
    unsigned uid = sys_geteuid();
    int dirfd = sys_open(dir, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC, 0), fd = -1;
    struct stat st;
    char name[12];

    if (dirfd < 0)
        return dirfd;
    snprintf(name, sizeof(name), "%d", pid);
    if (fstat(dirfd, &st) == 0 && st.st_uid == uid && (st.st_mode & 0777) == 0700)
        fd = (int)SYS6(SYS_openat, dirfd, name, O_RDWR | O_NONBLOCK | O_NOFOLLOW | O_CLOEXEC, 0, 0,
                       0);
    sys_close(dirfd);
    if (fd < 0)
        return fd;
    if (fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && st.st_uid == uid &&
        SYS6(SYS_pread64, fd, &head, sizeof(head), 0, 0, 0) == (long)sizeof(head) &&
        head.magic == FB_PUB_MAGIC && head.version == FB_PUB_VERSION && head.pid == (uint32_t)pid &&
        head.pid_namespace == namespace)
        return fd;
    sys_close(fd);
    return -ENOENT;
}

fb_pub_given *fb_pub_given_there(int32_t pid, uint64_t cookie)
{
    uint64_t namespace = fb_pub_own_namespace(), word = 0;
    void *p = MAP_FAILED;
    char dir[72];
    int fd;

    rsk_own_enter();
    snprintf(dir, sizeof(dir), FB_PUB_DIR, sys_geteuid());
    fd = open_theirs(dir, pid, namespace);
    if (fd < 0) {
        snprintf(dir, sizeof(dir), FB_PUB_DIR ".%llu", sys_geteuid(),
                 (unsigned long long)namespace);
        fd = open_theirs(dir, pid, namespace);
    }
    if (fd >= 0) {
        /* Read, a hole is nothing; mapped, it could be a signal. */
        SYS6(SYS_pread64, fd, &word, sizeof(word),
             FB_PUB_GIVEN + cookie % FB_PUB_GIVEN_SLOTS * sizeof(word), 0, 0);
        if (word >> FB_PUB_GIVEN_SHIFT == cookie)
            p = mmap(NULL, GIVEN_SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, FB_PUB_GIVEN);
        sys_close(fd);
    }
    rsk_own_leave();
    return p == MAP_FAILED ? NULL : p;
}

void fb_pub_given_gone(fb_pub_given *words)
{
    munmap((void *)words, GIVEN_SIZE);
}

void fb_pub_remove(void)
{
    char *last = strrchr(file_path, '/');

    if (!named)
        return;
    sys_unlink(file_path);
    *last = '\0';
    if (strrchr(file_path, '.')) /* a namespace's, which ends with its last process */
        SYS6(SYS_unlinkat, AT_FDCWD, file_path, AT_REMOVEDIR, 0, 0, 0);
    *last = '/';
}

void fb_pub_show(bool on)
{
    static uint64_t start;

    if (!file || file->pid != (uint32_t)sys_getpid())
        return;
    if (file->start_time)
        start = file->start_time;
    file->start_time = on ? start : 0;
}

struct fb_pub_file *fb_pub_head(void)
{
    return file;
}

struct fb_pub_file *fb_pub_hand_on(void)
{
    struct fb_pub_file *theirs = file;

    /* A forked child has closed it already. */
    if (file_fd >= 0 && rsk_own_has(file_fd))
        rsk_own_close(file_fd);
    file = NULL;
    file_fd = -1;
    named = false;
    reserved = 0;
    given_room = false;
    return theirs;
}

void fb_pub_end(struct fb_pub_file *theirs)
{
    if (theirs)
        munmap(theirs, WHOLE);
}

void fb_pub_forget(void)
{
    fb_pub_end(fb_pub_hand_on());
}
