/*
 * pl_fd.c - close, dup and their family: which number stands for which stream.
 *
 * A number that goes away does so in this order: its stream does what close means for
 * it (while the number can still be looked up, so that calls of other threads meet the
 * stream and not the anchor), the slot is emptied, and then the kernel closes. The
 * other way round somebody else could already have been given the number.
 *
 * In a vfork child, which runs in its parent's memory, all of this is the kernel's alone.
 */
#include "preload/pl_own.h"

#include "config/log.h"
#include "config/reason.h"
#include "rsock/loop.h"
#include "rsock/own.h"
#include "rsock/sys.h"

#include <errno.h>
#include <limits.h>
#include <linux/close_range.h>
#include <sys/stat.h>

#define EVERY_EVENT (POLLIN | POLLPRI | POLLOUT | POLLRDHUP)

/* The value of f->closing for this close: what a thread that sleeps on the number in poll is to
 * make of it. Found out before the stream's end wakes that thread. The table and the caller have
 * one reference each; only if there are more can somebody be in a call. Pairs with is_gone() in
 * pl_poll_serve.c, whose thread has taken its reference first. */
static uint8_t as_it_is(struct pl_file *f, bool closed)
{
    uint8_t held = 0;

    if (f->kind != PL_STREAM || !closed || !fb_may_linger(f->stream))
        return PL_KERNELS;
    if (atomic_load(&f->refs) > 2)
        held = pl_held_bits(fb_ready(f->stream, f->fd, EVERY_EVENT));
    return PL_GONE | held;
}

/* The file's number was claimed by the caller: nobody else closes it meanwhile. end: how
 * a stream does. */
static void closing(struct pl_file *f, void (*end)(struct fb_stream *, int fd))
{
    struct pl_file *taken;

    atomic_store(&f->closing, as_it_is(f, end == fb_close));
    if (f->kind != PL_LISTENER)
        pl_epoll_forget_fd(f, end == fb_disconnected);
    if (f->kind == PL_STREAM)
        end(f->stream, f->fd);
    taken = pl_take(f->fd);
    if (taken)
        pl_put(taken);
}

int pl_closing(int fd)
{
    bool ours;

    pl_heir_drop(fd);
    pl_made_forget(fd);
    PL_HELD f = pl_hold(fd);

    if (!f)
        return 0;
    /* Most connections never had a rail. */
    ours = f->kind == PL_STREAM && fb_untouched(f->stream) ? pl_is_owner_here() : pl_is_owner();
    if (!ours)
        return 0;
    if (atomic_exchange(&f->closing, PL_CLOSING))
        return -EBADF;
    closing(f, fb_close);
    return 0;
}

void pl_dup_file(struct pl_file *f, int newfd)
{
    bool kept;

    switch (f->kind) {
    case PL_STREAM:
        fb_get(f->stream);
        kept = pl_install(newfd, PL_STREAM, f->stream) != NULL;
        if (kept)
            fb_dup(f->stream, newfd);
        /* Stdio's internal calls are not seen on 0, 1 and 2, and no call on a number that could not
         * be noted. */
        if (!kept || newfd <= 2)
            fb_pin(f->stream, newfd <= 2 ? RSN_STDIO_FD : RSN_NO_MEMORY, true);
        if (!kept)
            fb_put(f->stream);
        break;
    case PL_EPOLL:
        pl_epoll_number(pl_epoll_of(f));
        if (!pl_install(newfd, PL_EPOLL, pl_epoll_of(f)))
            pl_epoll_no_number(pl_epoll_of(f));
        break;
    default:
        pl_install(newfd, PL_LISTENER, NULL);
    }
}

static void disconnected_number(struct pl_file *f, void *stream)
{
    if (f->kind == PL_STREAM && f->stream == stream && !atomic_exchange(&f->closing, PL_CLOSING))
        closing(f, fb_disconnected);
}

void pl_disconnected(struct fb_stream *s)
{
    pl_each(disconnected_number, s);
}

/* ---- close ---- */

/* Does the close of this number make its stream or instance give up something that could not be had
 * back if the thread were cancelled and kept the number? Not if it is a connection that never had
 * to do with a rail: that is the kernel's anyway. */
static bool gives_up(int fd)
{
    if (atomic_load_explicit(&pl_heirs, memory_order_relaxed))
        return true;
    PL_HELD f = pl_hold(fd);

    return f && !(f->kind == PL_STREAM && fb_untouched(f->stream));
}

/* Not of what was inherited and never used, which is asked for as little here as in pl_closing. */
static struct fb_stream *stream_of(int fd)
{
    pl_heir_drop(fd);
    PL_HELD f = pl_hold(fd);

    if (!f || f->kind != PL_STREAM)
        return NULL;
    fb_get(f->stream);
    return f->stream;
}

static void closed(struct fb_stream *s, bool is)
{
    int saved = errno;

    if (is)
        fb_closed(s);
    fb_put(s);
    errno = saved;
}

static int close_it(int fd)
{
    int err = pl_closing(fd);

    if (err)
        return (int)pl_ret(err);
    /* A program that closes whatever numbers there may be does not know ours. */
    return PL_NUMBERED(rsk_own_has(fd) ? (int)pl_ret(-EBADF) : pl_real.close(fd));
}

/* A thread is cancelled before anything is given up, or when the number is the kernel's again: the
 * kernel too has closed it when it lets a cancellation in. */
PL_EXPORT int close(int fd)
{
    struct fb_stream *s;
    int ret;

    pl_ready();
    if (!gives_up(fd))
        return close_it(fd);
    pthread_testcancel();
    RSK_UNCANCELLED;
    s = stream_of(fd);
    ret = close_it(fd);
    if (s)
        closed(s, ret == 0);
    return ret;
}

PL_ALIAS(__close, close);
/* A queue is a descriptor, and nobody asks whether this one is. */
PL_ALIAS(mq_close, close);

void pl_give_away(struct pl_file *f, int reason)
{
    pl_give_away_by(f, reason, fb_pin_time());
}

void pl_give_away_by(struct pl_file *f, int reason, uint64_t until)
{
    char who[FB_WHO];

    if (fb_hand_over_by(f->stream, reason, RSK_RX | RSK_TX, until))
        return;
    log_error("descriptor %d: its peer has not handed the connection back: it is reset (%s)", f->fd,
              fb_who(f->stream, f->fd, who));
    sys_reset(f->fd);
}

struct range {
    unsigned int first, last;
    bool unshare;
};

static void close_in_range(struct pl_file *f, void *arg)
{
    const struct range *r = arg;

    if ((unsigned int)f->fd < r->first || (unsigned int)f->fd > r->last)
        return;
    /* The threads that keep the old descriptor table go on with the socket. */
    if (r->unshare && f->kind == PL_STREAM) {
        fb_maybe_shared(f->stream);
        fb_pin(f->stream, RSN_SHARED, true);
    }
    if (!atomic_exchange(&f->closing, PL_CLOSING))
        closing(f, r->unshare ? fb_forget : fb_close);
}

/* The kernel's call on the parts of the range between our own numbers, while those stay so. */
static int close_between(unsigned int first, unsigned int last, int flags)
{
    int own = (unsigned int)flags & CLOSE_RANGE_CLOEXEC || first > INT_MAX
                  ? -1
                  : rsk_own_next((int)first),
        r;

    while (own >= 0 && (unsigned int)own <= last) {
        if ((unsigned int)own > first) {
            r = pl_real.close_range(first, (unsigned int)own - 1, flags);
            if (r < 0)
                return r;
        }
        if ((unsigned int)own == last)
            return 0;
        first = (unsigned int)own + 1;
        own = rsk_own_next((int)first);
    }
    return pl_real.close_range(first, last, flags);
}

static int close_around(unsigned int first, unsigned int last, int flags)
{
    return PL_NUMBERED(close_between(first, last, flags));
}

static void range_closing(unsigned int first, unsigned int last, bool unshare)
{
    struct range r = {first, last, unshare};

    pl_made_forget_range(first, last);
    if (!pl_is_owner())
        return;
    pl_heir_drop_range(first, last);
    pl_each(close_in_range, &r);
}

/* A directory's links: itself, its entry, and one per thread. 0: there is no /proc. */
static unsigned long task_links(void)
{
    struct stat st = {0};

    return SYS6(SYS_newfstatat, AT_FDCWD, "/proc/self/task", &st, 0, 0, 0) == 0 ? st.st_nlink : 0;
}

bool pl_sees_threads(void)
{
    return task_links() != 0;
}

bool pl_alone(void)
{
    unsigned long links = task_links();

    return links && links <= (rsk_loop_running() ? 4 : 3);
}

PL_EXPORT int close_range(unsigned int first, unsigned int last, int flags)
{
    const unsigned int known = CLOSE_RANGE_UNSHARE | CLOSE_RANGE_CLOEXEC;
    unsigned int how = (unsigned int)flags;

    pl_ready();
    if (first > last || (how & ~known))
        return pl_real.close_range(first, last, flags);
    /* A caller with no thread beside it but the progress thread needs no table of its own: the
     * progress thread would only keep the old one, and in it what is closed here. */
    if ((how & CLOSE_RANGE_UNSHARE) && pl_alone() && !pl_shares_table())
        how &= ~CLOSE_RANGE_UNSHARE;
    else if ((how & CLOSE_RANGE_UNSHARE) && pl_is_owner())
        pl_plain_for_good(RSN_SHARED); /* as in unshare() */
    if (!(how & CLOSE_RANGE_CLOEXEC))
        range_closing(first, last, how & CLOSE_RANGE_UNSHARE);
    return close_around(first, last, (int)how);
}

PL_EXPORT void closefrom(int first)
{
    unsigned int from = first < 0 ? 0 : (unsigned int)first;

    pl_ready();
    range_closing(from, UINT_MAX, false);
    if (!pl_is_owner() ||
        (close_around(from, UINT_MAX, 0) < 0 && PL_NUMBERED(rsk_own_close_others(from)) < 0))
        pl_real.closefrom(first);
}

/* ---- dup ---- */

void pl_lend_to_spawned(struct pl_file *f, int fd)
{
    bool heir = !f && atomic_load_explicit(&pl_heirs, memory_order_relaxed);

    if ((!heir && (!f || f->kind != PL_STREAM)) || pl_is_owner())
        return;
    if (f)
        pl_give_away(f, RSN_SHARED);
    else
        pl_heir_lend(fd);
}

PL_EXPORT int posix_spawn_file_actions_adddup2(posix_spawn_file_actions_t *acts, int fd, int newfd)
{
    pl_ready();
    PL_HELD f = pl_hold(fd);

    if (f && f->kind == PL_STREAM)
        pl_give_away(f, RSN_SHARED);
    return pl_real.posix_spawn_file_actions_adddup2(acts, fd, newfd);
}

void pl_dupped(struct pl_file *f, int fd, int newfd)
{
    if (!pl_is_owner())
        return;
    if (f) {
        pl_dup_file(f, newfd);
        return;
    }
    pl_made_dup(fd, newfd);
    /* Another thread may have connected it by now. Either it has seen the dup, or this
     * is its stream. */
    PL_HELD now = pl_get_stream(fd);

    if (now)
        pl_dup_file(now, newfd);
}

PL_EXPORT int dup(int fd)
{
    int newfd;

    pl_ready();
    PL_HELD f = pl_hold(fd);
    pl_lend_to_spawned(f, fd);
    newfd = PL_NUMBERED(pl_real.dup(fd));
    if (newfd >= 0) {
        /* As it was done before there was dup2; any other one's may be data, which has got the
         * number by chance. */
        if (newfd == STDERR_FILENO && fd < newfd && pl_is_owner_here())
            cfg_log_note_stderr();
        pl_drop_stale(newfd);
        pl_dupped(f, fd, newfd);
    }
    return newfd;
}

/* The slot of `to` is ready for the kernel to replace it. -EBADF: another thread is closing it. */
static int replacing(int fd, int to)
{
    bool heir = atomic_load_explicit(&pl_heirs, memory_order_relaxed);
    PL_HELD f = pl_hold_number(to);

    /* An fd that is not open is the kernel's error, and `to` stays what it is. */
    if ((!heir && !f && !pl_made(to)) || sys_fcntl(fd, F_GETFD, 0) < 0)
        return 0;
    return pl_closing(to);
}

/* May a FILE have the number `to`, and go on with what dup2 puts there? 0, 1 and 2 are not asked
 * about: a stream that comes there is pinned in any case. */
static bool file_follows(int to)
{
    int saved = errno;
    struct stat st;
    bool may = to > 2 && (pl_made_has_file(to) || (fstat(to, &st) == 0 && !S_ISSOCK(st.st_mode)));

    errno = saved;
    return may;
}

/* Before the kernel's dup2 or dup3. Returns whether a FILE follows. */
static bool to_be_replaced(struct pl_file *f, int fd, int to)
{
    bool stream = f && f->kind == PL_STREAM;
    bool file = (stream || pl_made(fd)) && pl_is_owner() && !rsk_own_has(to) && file_follows(to);

    if (file && stream)
        pl_give_away(f, RSN_FDOPEN);
    pl_lend_to_spawned(f, fd);
    /* What another thread is closing at this moment, dup2 may well follow. */
    (void)replacing(fd, to);
    return file;
}

static int replaced(struct pl_file *f, int fd, int newfd, bool file)
{
    if (newfd < 0)
        return newfd;
    if (newfd == STDERR_FILENO && pl_is_owner_here())
        cfg_log_note_stderr();
    if (file) {
        pl_made_away(fd);
        pl_made_file(newfd);
    }
    pl_dupped(f, fd, newfd);
    return newfd;
}

/* Is `to` one of the library's own numbers? The kernel would put fd there, and the library would
 * go on with that; but not in a vfork child. To be asked within PL_NUMBERED, where those numbers
 * do not change. */
static bool is_taken(int fd, int to)
{
    if (!rsk_own_has(to) || !pl_is_owner() || sys_fcntl(fd, F_GETFD, 0) < 0)
        return false;
    log_warn("dup2 to %d is refused: the library has that number", to);
    errno = EBADF;
    return true;
}

PL_EXPORT int dup2(int fd, int to)
{
    bool file;

    pl_ready();
    PL_HELD f = fd == to ? pl_hold_number(fd) : pl_hold(fd);

    if (fd == to)
        return pl_real.dup2(fd, to);
    file = to_be_replaced(f, fd, to);
    return replaced(f, fd, PL_NUMBERED(is_taken(fd, to) ? -1 : pl_real.dup2(fd, to)), file);
}

PL_ALIAS(__dup2, dup2);

PL_EXPORT int dup3(int fd, int to, int flags)
{
    bool file;

    pl_ready();
    PL_HELD f = fd == to ? pl_hold_number(fd) : pl_hold(fd);

    if (fd == to || (flags & ~O_CLOEXEC))
        return pl_real.dup3(fd, to, flags);
    file = to_be_replaced(f, fd, to);
    return replaced(f, fd, PL_NUMBERED(is_taken(fd, to) ? -1 : pl_real.dup3(fd, to, flags)), file);
}

/* ---- a descriptor of another process, or of this one ---- */

struct same {
    int as, fd;
};

static void find_same(struct pl_file *f, void *arg)
{
    struct same *same = arg;

    if (f->kind == PL_STREAM && pl_same_socket(f->fd, same->as))
        same->fd = f->fd;
}

/* A socket that we have under another number is a dup of that. One that only another process has
 * stays libc's: whether it is on a rail there cannot be known from here. */
PL_EXPORT int pidfd_getfd(int pidfd, int target, unsigned int flags)
{
    struct same same = {.fd = -1};
    int fd;

    pl_ready();
    fd = PL_NUMBERED(pl_real.pidfd_getfd(pidfd, target, flags));
    if (fd < 0)
        return fd;
    pl_drop_stale(fd);
    if (!pl_is_tcp(fd) || !pl_is_owner())
        return fd;
    same.as = fd;
    pl_made_got(fd);
    pl_each(find_same, &same);
    PL_HELD f = pl_get_stream(same.fd);

    /* The number may have been closed since, and given to another stream. */
    same.fd = -1;
    if (f)
        find_same(f, &same);
    if (same.fd >= 0)
        pl_dup_file(f, fd);
    return fd;
}
