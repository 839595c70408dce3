/*
 * pl_hold.c - calls that change who the process is, or where. glibc's set*id functions change all
 * threads, ours included; what verbs and the rendezvous have opened under the old identity is
 * closed before. unshare and setns refuse a process of several threads, and capabilities and the
 * root directory belong to a thread, so that ours must not keep what the caller gives up: it ends
 * before. A call that fails is libc's own failure; connections then board again.
 *
 * Not here: what changes one thread's identity by a raw system call (setfsuid, and servers that
 * switch users for each request). Rails go on, or fail and leave (verbs).
 */
#include "preload/pl_own.h"

#include "config/reason.h"
#include "rsock/loop.h"
#include "rsock/sys.h"

#include <errno.h>
#include <sched.h>

void pl_hold_begin(struct pl_hold *h, int reason, enum fb_hold_what what)
{
    *h = (struct pl_hold){.what = what, .saved = errno, .on = pl_is_owner()};
    if (h->on)
        fb_hold(reason, what);
    errno = h->saved;
}

void pl_hold_end(struct pl_hold *h)
{
    int err = errno;

    if (h->on)
        fb_release(h->what);
    errno = err;
}

#define HELD(reason, what, name, params, args) \
    PL_EXPORT int name params                  \
    {                                          \
        struct pl_hold h;                      \
        int r;                                 \
                                               \
        pl_ready();                            \
        pl_hold_begin(&h, reason, what);       \
        r = pl_real.name args;                 \
        pl_hold_end(&h);                       \
        return r;                              \
    }

/* ---- credentials ---- */

#define CREDENTIALS(...) HELD(RSN_CREDENTIALS, FB_HOLD_CREDENTIALS, __VA_ARGS__)

CREDENTIALS(setuid, (uid_t u), (u))
CREDENTIALS(seteuid, (uid_t u), (u))
CREDENTIALS(setreuid, (uid_t r_, uid_t e), (r_, e))
CREDENTIALS(setresuid, (uid_t r_, uid_t e, uid_t s), (r_, e, s))
CREDENTIALS(setgid, (gid_t g), (g))
CREDENTIALS(setegid, (gid_t g), (g))
CREDENTIALS(setregid, (gid_t r_, gid_t e), (r_, e))
CREDENTIALS(setresgid, (gid_t r_, gid_t e, gid_t s), (r_, e, s))
CREDENTIALS(setgroups, (size_t n, const gid_t *list), (n, list))
CREDENTIALS(initgroups, (const char *user, gid_t g), (user, g))

/* ---- what belongs to a thread ---- */

HELD(RSN_CREDENTIALS, FB_HOLD_THREAD, capset, (cap_user_header_t head, cap_user_data_t data),
     (head, data))
HELD(RSN_NAMESPACE, FB_HOLD_THREAD, setns, (int fd, int type), (fd, type))
HELD(RSN_NAMESPACE, FB_HOLD_THREAD, pivot_root, (const char *root, const char *old), (root, old))

PL_EXPORT int chroot(const char *path)
{
    struct pl_hold h;
    int r;

    pl_ready();
    pl_hold_begin(&h, RSN_NAMESPACE, FB_HOLD_THREAD);
    r = pl_real.chroot(path);
    if (r == 0)
        rsk_loop_no_libraries(); /* what is in the new root need not be what its name says */
    pl_hold_end(&h);
    return r;
}

/* Other threads of the application keep the old descriptor table: a number means two things. */
static bool splits_table(int flags)
{
    return (flags & CLONE_FILES) && !pl_alone();
}

PL_EXPORT int unshare(int flags)
{
    struct pl_hold h;
    int r;

    pl_ready();
    pl_hold_begin(&h, RSN_NAMESPACE, FB_HOLD_THREAD);
    if (h.on && splits_table(flags)) {
        pl_plain_for_good(RSN_SHARED);
        h.on = false;
    }
    r = pl_real.unshare(flags);
    pl_hold_end(&h);
    return r;
}

/* ---- descriptors ---- */

/* Under such a limit none of ours can be made, which the end of a rail may need: there are
 * no rails then. */
static bool too_few(pid_t pid, int what, const void *limit)
{
    /* rlimit and rlimit64 are the same on 64 bits. */
    return limit && ((const struct rlimit *)limit)->rlim_cur < 512 + 128 &&
           (pid == 0 || pid == sys_getpid()) && what == RLIMIT_NOFILE;
}

/* To ask for what was inherited, and has not been used yet, takes a descriptor too. */
static void few_begin(struct pl_hold *h)
{
    int saved = errno;

    if (atomic_load(&pl_heirs) && pl_is_owner())
        pl_heir_exec(true);
    errno = saved;
    pl_hold_begin(h, RSN_LIMIT_FD, FB_HOLD_THREAD);
}

#define LIMIT(name, params, args, pid, what, limit)       \
    PL_EXPORT int name params                             \
    {                                                     \
        struct pl_hold h = {.on = false, .saved = errno}; \
        int r;                                            \
                                                          \
        pl_ready();                                       \
        if (too_few(pid, (int)(what), limit))             \
            few_begin(&h);                                \
        r = pl_real.name args;                            \
        pl_hold_end(&h);                                  \
        return r;                                         \
    }

LIMIT(setrlimit, (__rlimit_resource_t what, const struct rlimit *limit), (what, limit), 0, what,
      limit)
LIMIT(setrlimit64, (__rlimit_resource_t what, const struct rlimit64 *limit), (what, limit), 0, what,
      limit)
LIMIT(prlimit,
      (pid_t pid, enum __rlimit_resource what, const struct rlimit *limit, struct rlimit *old),
      (pid, what, limit, old), pid, what, limit)
LIMIT(prlimit64,
      (pid_t pid, enum __rlimit_resource what, const struct rlimit64 *limit, struct rlimit64 *old),
      (pid, what, limit, old), pid, what, limit)
