/*
 * pl_clone.c - clone(3): a thread, which is nobody's business; a process in the caller's memory,
 * which is as vfork's child; or a copy, as after fork, which we meet at its start.
 */
#include "preload/pl_own.h"

#include "rsock/own.h"

#include <errno.h>
#include <sched.h>

struct start {
    int (*fn)(void *);
    void *arg;
};

/* In the copy, whose memory has the frame of the wrapper as it was. */
static int in_copy(void *arg)
{
    struct start s = *(struct start *)arg;

    pl_child();
    return pl_thread_ends(s.fn(s.arg)); /* libc ends this thread, not the process */
}

static int copy(struct start *s, void *stack, int flags, void *const more[3])
{
    struct pl_fork fork;
    /* With CLONE_VFORK it comes back only when the child has ended or executes a program. */
    const bool apart = !(flags & CLONE_VFORK);
    int pid, err;

    pl_fork_begin(&fork, flags & CLONE_FILES);
    if (apart)
        rsk_own_fork_begin();
    pid = pl_real.clone(in_copy, stack, flags, s, more[0], more[1], more[2]);
    err = errno;
    if (apart)
        rsk_own_fork_end();
    pl_fork_end(&fork);
    errno = err;
    return pid;
}

PL_EXPORT int clone(int (*fn)(void *), void *stack, int flags, void *arg, ...)
{
    struct start s = {fn, arg};
    void *more[3];
    va_list ap;

    va_start(ap, arg);
    for (int i = 0; i < 3; i++)
        more[i] = va_arg(ap, void *);
    va_end(ap);
    pl_ready();
    pl_cloning((unsigned)flags);
    if (fn && stack && !(flags & CLONE_THREAD) && pl_is_owner()) {
        if (!(flags & CLONE_VM))
            return copy(&s, stack, flags, more);
        pl_before_spawn();
    }
    return pl_real.clone(fn, stack, flags, arg, more[0], more[1], more[2]);
}

PL_ALIAS(__clone, clone);
