/*
 * pl_process.c - who owns the tables, and what happens when the process multiplies.
 *
 * Rails belong to the process that made them. At a fork they stay where they are; the child
 * asks its parent before it uses what it inherited (pl_heir.c, and heir.c below). What a new
 * program will hold leaves before exec or spawn, because nobody there would ask. The child
 * never touches an inherited lock: tables are replaced, not cleaned up.
 *
 * A forked child is told of it by the wrapper of fork, by pthread_atfork for forks inside libc,
 * and, after clone or other system calls, by a page that the kernel wipes on fork and that pl_get
 * looks at. A vfork child (posix_spawn's too) runs in its parent's memory; only its pid tells it
 * from its parent, and everything it calls goes straight to libc, except that a stream whose
 * descriptor it copies, or keeps over exec, leaves its rail (pl_lend_to_spawned).
 */
#include "preload/pl_own.h"

#include "config/reason.h"
#include "rsock/loop.h"
#include "rsock/own.h"
#include "rsock/sys.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

/* Set when the constructor, or the first wrapper of a rare call, runs. */
static _Atomic int owner;

/* A vfork child runs in this memory as our threads do, and only its pid tells it from them. It has
 * its parent's thread-local variables while that thread sleeps, so has_vforked is seen by both, and
 * by no other thread; it stays set, since a handler may run between this and the vfork. strangers:
 * something may run here that is neither one of our threads nor such a child; also before the
 * constructor, and where no memory tells of a fork (MADV_WIPEONFORK). */
static _Thread_local bool has_vforked;
RSK_HOT static _Atomic bool strangers = true;

/* The table of descriptors may be shared with a child that was cloned so, or with the parent that
 * cloned this process so: it is set before the clone. */
static _Atomic bool shares_table;

bool pl_shares_table(void)
{
    return atomic_load_explicit(&shares_table, memory_order_relaxed);
}

void pl_cloning(uint64_t flags)
{
    if (flags & CLONE_FILES && !(flags & CLONE_THREAD))
        atomic_store_explicit(&shares_table, true, memory_order_relaxed);
    if (!(flags & CLONE_VM) || (flags & CLONE_THREAD))
        return;
    has_vforked = true;
    if (!(flags & CLONE_VFORK) || (flags & CLONE_SETTLS))
        atomic_store_explicit(&strangers, true, memory_order_relaxed);
}

static void fork_begins(void)
{
    pl_made_forking();
    rsk_own_fork_begin();
}

static void fork_over(void)
{
    rsk_own_fork_end();
    pl_made_forked();
}

void pl_process_init(void)
{
    long page;

    atomic_store(&owner, sys_getpid());
    page = SYS6(SYS_mmap, NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (page > 0 && SYS6(SYS_madvise, page, 4096, MADV_WIPEONFORK, 0, 0, 0) == 0) {
        _Atomic uint32_t *alive = (_Atomic uint32_t *)page;

        atomic_store(alive, 1);
        pl_alive = alive;
        atomic_store_explicit(&strangers, false, memory_order_relaxed);
    }
    /* Nothing of streams is prepared: a fork that our wrapper does not see leaves them
     * where they are. */
    pthread_atfork(fork_begins, fork_over, pl_child);
    fb_on_epoll_asked(pl_epoll_asked);
}

/* What this thread has prepared for the child that it is about to have. */
static _Thread_local struct pl_fork *forking;

void pl_child(void)
{
    struct fb_heritage *heritage = NULL;
    int pid;

    rsk_own_forked();
    if (atomic_load_explicit(&pl_passive, memory_order_relaxed))
        return;
    pid = sys_getpid();
    if (atomic_exchange(&owner, pid) == pid && atomic_load(pl_alive))
        return;
    atomic_store(pl_alive, 1);
    pl_made_child();
    if (forking && forking->asks)
        fb_fork_keep(&forking->link);
    rsk_loop_after_fork_child();
    if (forking && forking->asks)
        heritage = fb_fork_child(&forking->link);
    else
        fb_after_fork_child();
    forking = NULL;
    pl_heir_after_fork_child();
    pl_table_reset(heritage);
    pl_epoll_after_fork_child();
}

bool pl_is_owner(void)
{
    int pid, none = 0;

    if (atomic_load_explicit(&pl_passive, memory_order_relaxed))
        return false;
    pid = sys_getpid();
    if (!atomic_load_explicit(pl_alive, memory_order_relaxed))
        pl_child();
    /* Before the constructor. */
    if (atomic_compare_exchange_strong(&owner, &none, pid))
        return true;
    return none == pid;
}

bool pl_is_owner_here(void)
{
    if (has_vforked || atomic_load_explicit(&strangers, memory_order_relaxed) ||
        !atomic_load_explicit(pl_alive, memory_order_relaxed))
        return pl_is_owner();
    return !atomic_load_explicit(&pl_passive, memory_order_relaxed);
}

/* ---- fork ---- */

/* What the child will hold, too: streams leave and stay on TCP; an epoll instance would give its
 * events to whichever process asks first, so its members stay on TCP as well (HARD-CASES 5). */
static void leave_for_child(bool files, enum fb_heirs heirs)
{
    fb_leave_all(RSN_FORKED, heirs);
    pl_epoll_cross_all();
    /* If the child's table is this one: what it finds in it is not a copy to be closed. */
    rsk_own_files_are_shared(files);
}

void pl_leave_for_child(bool files)
{
    leave_for_child(files, FB_CHILD_AS_WELL);
}

/* Before a call that forks; streams stay where they are if the child can ask for them. */
void pl_fork_begin(struct pl_fork *f, bool files)
{
    *f = (struct pl_fork){.link.theirs = -1, .outer = forking, .files = files};
    rsk_own_files_are_shared(files);
    pl_made_forking();
    f->asks = !files && fb_fork_begin(&f->link);
    if (!f->asks)
        pl_leave_for_child(files);
    forking = f;
}

void pl_fork_end(struct pl_fork *f)
{
    forking = f->outer;
    rsk_own_files_are_shared(forking && forking->files);
    fb_fork_parent(&f->link);
    pl_made_forked();
}

/* In a section: a handler that forks would wait for libc's locks, which its own thread has; a
 * program of one thread knows no such locks, but with ours it has two. */
static pid_t fork_with(pid_t (*real)(void))
{
    PL_SECTION;
    struct pl_fork f;
    pid_t pid;

    if (!pl_is_owner())
        return real();
    pl_fork_begin(&f, false);
    pid = real();
    if (pid == 0)
        pl_child();
    else
        pl_fork_end(&f);
    return pid;
}

PL_EXPORT pid_t fork(void)
{
    pl_ready();
    return fork_with(pl_real.fork);
}

PL_ALIAS(__fork, fork);

/* It knows no pthread_atfork. */
static pid_t bare_fork(void)
{
    pid_t pid;

    rsk_own_fork_begin();
    pid = pl_real._Fork();
    if (pid == 0)
        rsk_own_forked();
    else
        rsk_own_fork_end();
    return pid;
}

PL_EXPORT pid_t _Fork(void)
{
    pl_ready();
    return fork_with(bare_fork);
}

/* libc forks inside: the child is told by pthread_atfork, and the parent never comes back to answer
 * it. Our thread ends before, so that it is not in the middle of opening something. */
PL_EXPORT int daemon(int nochdir, int noclose)
{
    struct pl_hold h;
    int r;

    pl_ready();
    fb_closed_over(true);
    pl_hold_begin(&h, RSN_FORKED, FB_HOLD_THREAD);
    if (h.on)
        leave_for_child(false, FB_CHILD_ALONE);
    r = pl_real.daemon(nochdir, noclose);
    pl_hold_end(&h);
    return r;
}

PL_EXPORT int forkpty(int *amaster, char *name, const struct termios *tio, const struct winsize *ws)
{
    bool ours;
    struct pl_fork f;
    int pid;

    pl_ready();
    PL_SECTION;
    ours = pl_is_owner();
    if (ours)
        pl_fork_begin(&f, false);
    pid = pl_real.forkpty(amaster, name, tio, ws);
    if (pid != 0 && ours)
        pl_fork_end(&f);
    if (pid > 0)
        pl_drop_stale(*amaster);
    return pid;
}

/* ---- spawn ---- */

/* A program that will hold the socket may use it at any time. First all begin to leave, then
 * they are waited for with one common time limit: many peers that do not answer take no
 * longer than one. */
static void leave_inherited(struct pl_file *f, void *unused)
{
    (void)unused;
    if (f->kind == PL_STREAM && sys_fcntl(f->fd, F_GETFD, 0) == 0) {
        fb_maybe_shared(f->stream);
        fb_pin(f->stream, RSN_SHARED, false);
    }
}

static void pin_inherited(struct pl_file *f, void *until)
{
    if (f->kind == PL_STREAM && sys_fcntl(f->fd, F_GETFD, 0) == 0)
        fb_pin_by(f->stream, RSN_SHARED, *(uint64_t *)until);
    if (f->kind == PL_EPOLL && sys_fcntl(f->fd, F_GETFD, 0) == 0)
        pl_epoll_cross(f);
}

static void give_inherited(struct pl_file *f, void *until)
{
    if (f->kind == PL_STREAM && sys_fcntl(f->fd, F_GETFD, 0) == 0)
        pl_give_away_by(f, RSN_SHARED, *(uint64_t *)until);
}

void pl_before_spawn(void)
{
    uint64_t until;

    if (!pl_is_owner())
        return;
    if (atomic_load(&pl_heirs))
        pl_heir_exec(false);
    pl_each(leave_inherited, NULL);
    until = fb_pin_time();
    pl_each(pin_inherited, &until);
    pl_made_inherited();
}

void pl_before_exec(void)
{
    uint64_t until;

    if (!pl_is_owner())
        return;
    until = fb_pin_time();
    /* All at once, then what stays: pinning one by one would wait for each peer in turn. Nobody but
     * the new program has it then. */
    fb_leave_all(RSN_FORKED, FB_NOBODY);
    fb_closed_over(false);
    fb_through(); /* the kernel ends our thread, which says last that children need not ask */
    pl_each(give_inherited, &until);
    pl_before_spawn();
}

/* Called by pl_vfork.c. */
void *pl_before_vfork(void);
void *pl_before_vfork(void)
{
    pl_ready();
    pl_cloning(CLONE_VM | CLONE_VFORK);
    pl_before_spawn();
    return (void *)pl_real.vfork;
}

PL_EXPORT int posix_spawn(pid_t *restrict pid, const char *restrict path,
                          const posix_spawn_file_actions_t *restrict acts,
                          const posix_spawnattr_t *restrict attr, char *const argv[restrict],
                          char *const envp[restrict])
{
    pl_ready();
    pl_before_spawn();
    return pl_real.posix_spawn(pid, path, acts, attr, argv, envp);
}

PL_EXPORT int posix_spawnp(pid_t *restrict pid, const char *restrict file,
                           const posix_spawn_file_actions_t *restrict acts,
                           const posix_spawnattr_t *restrict attr, char *const argv[restrict],
                           char *const envp[restrict])
{
    pl_ready();
    pl_before_spawn();
    return pl_real.posix_spawnp(pid, file, acts, attr, argv, envp);
}

static int pidfd_spawned(const char *by, int *pidfd, const char *what,
                         const posix_spawn_file_actions_t *acts, const posix_spawnattr_t *attr,
                         char *const argv[], char *const envp[])
{
    __typeof__(pl_real.pidfd_spawn) real;
    void *found = pl_newer(by);
    int err;

    if (!found)
        return ENOSYS;
    memcpy(&real, &found, sizeof(real));
    pl_before_spawn();
    err = real(pidfd, what, acts, attr, argv, envp);
    if (err == 0 && pidfd)
        pl_drop_stale(*pidfd);
    return err;
}

PL_EXPORT int pidfd_spawn(int *pidfd, const char *path, const posix_spawn_file_actions_t *acts,
                          const posix_spawnattr_t *attr, char *const argv[], char *const envp[])
{
    pl_ready();
    return pidfd_spawned("pidfd_spawn", pidfd, path, acts, attr, argv, envp);
}

PL_EXPORT int pidfd_spawnp(int *pidfd, const char *file, const posix_spawn_file_actions_t *acts,
                           const posix_spawnattr_t *attr, char *const argv[], char *const envp[])
{
    pl_ready();
    return pidfd_spawned("pidfd_spawnp", pidfd, file, acts, attr, argv, envp);
}

/* ---- exit ---- */

void pl_ending(void)
{
    if (pl_is_owner())
        fb_exit();
}

/* exit() and the end of main; runs after the program's own handlers, but destructors of other
 * libraries may still write, so nothing is torn down. */
__attribute__((destructor)) static void at_exit(void)
{
    pl_ending();
}

PL_EXPORT void _exit(int status)
{
    pl_ready();
    pl_ending();
    pl_real._exit(status);
    __builtin_unreachable();
}

PL_EXPORT void _Exit(int status)
{
    _exit(status);
}

PL_EXPORT void quick_exit(int status)
{
    pl_ready();
    pl_ending();
    pl_real.quick_exit(status);
    __builtin_unreachable();
}
