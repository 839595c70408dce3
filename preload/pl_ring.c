/*
 * pl_ring.c - io_urings that the program makes: such a ring reads, writes and polls where no
 * wrapper sees it, so the streams that there are leave and stay on TCP, and later ones are kept
 * there by pl_foreign.c as long as there is a ring. Here are liburing's names that make one; its
 * own system call is inline.
 *
 * They are looked up when they are called, and not by the program's scope alone: liburing may be
 * there for one library only, which was opened with RTLD_LOCAL. Any thread.
 */
#include "preload/pl_own.h"

#include "config/env.h"
#include "config/reason.h"
#include "rsock/own.h"

#include <dlfcn.h>
#include <errno.h>
#include <linux/io_uring.h>
#include <string.h>

#ifndef IORING_SETUP_NO_MMAP /* Linux 6.5 */
#define IORING_SETUP_NO_MMAP (1u << 14)
#endif

_Atomic unsigned pl_rings;

static void pin(struct pl_file *f, void *unused)
{
    (void)unused;
    if (f->kind == PL_STREAM)
        fb_pin(f->stream, RSN_IO_URING, false);
}

void pl_ring_made(unsigned flags)
{
    int err = errno;

    if (!cfg.ring_for_files && pl_is_owner() && !rsk_own_in_step()) {
        /* Counted first: a stream that is not there yet finds it (pl_foreign.c). */
        atomic_fetch_add(&pl_rings, 1);
        if (flags & IORING_SETUP_NO_MMAP) /* nobody could tell that there is one */
            fb_plain_for_good(RSN_IO_URING);
        pl_each(pin, NULL);
        fb_leave_all(RSN_IO_URING, FB_NOBODY);
    }
    errno = err;
}

/* What the caller would have found without us, or NULL. */
static void *liburing(const char *name, const void *caller)
{
    int err = errno;
    void *found = pl_newer(name), *lib;
    Dl_info who;

    if (!found && dladdr(caller, &who) &&
        (lib = dlopen(who.dli_fname, RTLD_LAZY | RTLD_NOLOAD)) != NULL) {
        found = dlsym(lib, name);
        dlclose(lib);
    }
    if (!found)
        (void)dlerror(); /* the program has not asked */
    errno = err;
    return found;
}

/*
 * io_uring_get_probe makes a ring to ask what the kernel can do, and ends it before it returns. It
 * goes by io_uring_queue_init, which calls another of these names: that is known by its frame,
 * close below the one that knows who asks. A handler's is farther away.
 */
static _Thread_local uintptr_t asking;
enum { CLOSE = 1024 };

static bool by_probe(const void *caller, const void *frame)
{
    Dl_info who;

    return asking - (uintptr_t)frame < CLOSE || (dladdr(caller, &who) && who.dli_sname &&
                                                 strcmp(who.dli_sname, "io_uring_get_probe") == 0);
}

#define MAKES_RING(name, args, flags)                                                    \
    do {                                                                                 \
        const void *caller = __builtin_return_address(0);                                \
        void *found = liburing(#name, caller);                                           \
        uintptr_t was = asking;                                                          \
        __typeof__(name) *real;                                                          \
        bool asks;                                                                       \
        int r;                                                                           \
                                                                                         \
        pl_ready();                                                                      \
        if (!found)                                                                      \
            return -ENOSYS; /* as liburing says it */                                    \
        memcpy(&real, &found, sizeof(real));                                             \
        asks = by_probe(caller, __builtin_frame_address(0));                             \
        if (asks) { /* no handler jumps out of it */                                     \
            rsk_section_enter();                                                         \
            asking = (uintptr_t)__builtin_frame_address(0);                              \
        }                                                                                \
        r = real args;                                                                   \
        if (asks) {                                                                      \
            asking = was;                                                                \
            rsk_section_leave();                                                         \
        }                                                                                \
        if (r >= 0 && !asks && !atomic_load_explicit(&pl_passive, memory_order_relaxed)) \
            pl_ring_made(flags);                                                         \
        return r;                                                                        \
    } while (0)

PL_EXPORT int io_uring_queue_init(unsigned entries, struct io_uring *ring, unsigned flags)
{
    MAKES_RING(io_uring_queue_init, (entries, ring, flags), flags);
}

PL_EXPORT int io_uring_queue_init_params(unsigned entries, struct io_uring *ring,
                                         struct io_uring_params *p)
{
    MAKES_RING(io_uring_queue_init_params, (entries, ring, p), p->flags);
}

PL_EXPORT int io_uring_queue_init_mem(unsigned entries, struct io_uring *ring,
                                      struct io_uring_params *p, void *buf, size_t size)
{
    MAKES_RING(io_uring_queue_init_mem, (entries, ring, p, buf, size), p->flags);
}

PL_EXPORT int io_uring_setup(unsigned entries, struct io_uring_params *p)
{
    MAKES_RING(io_uring_setup, (entries, p), p->flags);
}
