/*
 * real.h - the next definitions of the symbols in calls.def: libc's, unless another
 * library stands between us and it. pl_real may be used after pl_ready() in any
 * wrapper, however early it is called.
 */
#ifndef PL_REAL_H
#define PL_REAL_H

#include <aio.h>
#include <linux/capability.h>
#include <mqueue.h>
#include <poll.h>
#include <pty.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <time.h>
#include <wordexp.h>

#if defined(_FORTIFY_SOURCE) && _FORTIFY_SOURCE > 0
#error "preload/ defines the functions that _FORTIFY_SOURCE turns into inlines"
#endif

/* What the application calls; everything else in the library is hidden. */
#define PL_EXPORT __attribute__((visibility("default")))
/* Another public name of a function in the same file. */
#ifdef __clang__
#define PL_COPY(of)
#else
#define PL_COPY(of) copy(of),
#endif
#define PL_ALIAS(name, of) \
    extern __typeof__(of) name __attribute__((PL_COPY(of) alias(#of), visibility("default")))

/* liburing's. */
struct io_uring;
struct io_uring_params;

struct pl_real {
#define CALL(ret, name, params, args, class) ret(*name) params;
#include "preload/calls.def"
#undef CALL
};

/* glibc or liburing has them, and no header that is needed otherwise says so. */
int capset(cap_user_header_t head, cap_user_data_t data);
int pidfd_getfd(int pidfd, int target, unsigned int flags);
int pidfd_spawn(int *pidfd, const char *path, const posix_spawn_file_actions_t *acts,
                const posix_spawnattr_t *attr, char *const argv[], char *const envp[]);
int pidfd_spawnp(int *pidfd, const char *file, const posix_spawn_file_actions_t *acts,
                 const posix_spawnattr_t *attr, char *const argv[], char *const envp[]);
int io_uring_queue_init(unsigned int entries, struct io_uring *ring, unsigned int flags);
int io_uring_queue_init_params(unsigned int entries, struct io_uring *ring,
                               struct io_uring_params *p);
int io_uring_queue_init_mem(unsigned int entries, struct io_uring *ring, struct io_uring_params *p,
                            void *buf, size_t size);
int io_uring_setup(unsigned int entries, struct io_uring_params *p);
int pivot_root(const char *root, const char *old);

extern struct pl_real pl_real;
extern _Atomic bool pl_resolved;

void pl_resolve(void);
/* A symbol that older libcs do not have, or libc never has, and which is not in pl_real therefore;
 * NULL: so it is here. */
void *pl_newer(const char *name);

/* First thing in every wrapper. Afterwards every pointer of pl_real can be called. */
static inline void pl_ready(void)
{
    /* Acquire: pairs with the release in pl_resolve, after the pointers were written. */
    if (__builtin_expect(!atomic_load_explicit(&pl_resolved, memory_order_acquire), 0))
        pl_resolve();
}

#endif
