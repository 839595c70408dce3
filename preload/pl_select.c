/*
 * pl_select.c - select and pselect. As poll: straight to libc unless a stream on a rail (or an
 * epoll instance) is in the sets; then the sets become a poll set (pl_poll_serve.c) and its
 * answer becomes sets again, with the kernel's own mapping (fs/select.c: POLLIN_SET,
 * POLLOUT_SET, POLLEX_SET).
 *
 * Any application thread. No locks.
 */
#include "preload/pl_poll.h"

#include "rsock/sys.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/select.h>
#include <sys/time.h>

#define IN_SET  (POLLRDNORM | POLLRDBAND | POLLIN | POLLHUP | POLLERR | POLLNVAL)
#define OUT_SET (POLLWRBAND | POLLWRNORM | POLLOUT | POLLERR | POLLNVAL)
#define EX_SET  (POLLPRI | POLLNVAL)

enum { WORD_BITS = 8 * sizeof(unsigned long) };
enum { SETS = 3, READ = 0, WRITE = 1, EXCEPT = 2 };

static const short asks[SETS] = {POLLIN, POLLOUT, POLLPRI};
static const short answers[SETS] = {IN_SET, OUT_SET, EX_SET};

/* The call as the application made it, but for nfds: select has a timeval, which it writes back. */
struct call {
    int nfds; /* what the kernel makes of it */
    unsigned long *set[SETS];
    struct timeval *tv;
    const struct timespec *ts;
    const sigset_t *mask;
    bool is_pselect;
};

/* What the application asked, for a second try: the kernel overwrites the sets. And
 * the poll set. */
struct select_wait {
    struct pl_block block; /* first */
    size_t words;          /* of one set */
    struct pollfd *fds;    /* room for one per bit that is set */
    unsigned long asked[]; /* three sets */
};

static size_t words_of(int nfds)
{
    return ((size_t)nfds + WORD_BITS - 1) / WORD_BITS;
}

/* Bits of word i that lie below nfds. */
static unsigned long below(int nfds, size_t i)
{
    int left = nfds - (int)i * WORD_BITS;

    return left >= WORD_BITS ? ~0ul : (1ul << left) - 1;
}

static unsigned long wanted(const struct call *c, size_t i)
{
    unsigned long any = 0;

    for (int s = 0; s < SETS; s++)
        any |= c->set[s] ? c->set[s][i] : 0;
    return any & below(c->nfds, i);
}

static bool is_programs(int fd)
{
    return sys_fcntl(fd, F_GETFD, 0) >= 0 && !rsk_own_has(fd);
}

/*
 * The kernel looks no further in the sets than its table of descriptors goes, and programs rely on
 * it: select(getdtablesize(), ..) with fd_sets of 1,024 bits, whatever the limit. What lies behind
 * those is not theirs, so it is neither read nor written. A table that numbers of ours alone have
 * made larger would be smaller without us.
 */
static int most_numbers(int nfds)
{
    int size = pl_numbers(), fd;

    if (size > FD_SETSIZE || size == 0) {
        for (fd = (size && size < nfds ? size : nfds) - 1; fd >= FD_SETSIZE && !is_programs(fd);)
            fd--;
        if (fd < FD_SETSIZE || !size)
            size = fd + 1;
    }
    return size < nfds ? size : nfds;
}

int pl_select_sees(int nfds)
{
    if (nfds <= FD_SETSIZE)
        return nfds;
    return atomic_load(&pl_heirs) ? most_numbers(nfds) : pl_highest(nfds);
}

static enum pl_need need_of_sets(const struct call *c)
{
    enum pl_need most = PL_KERNEL;

    for (size_t i = 0; i < words_of(c->nfds); i++)
        for (unsigned long bits = wanted(c, i); bits; bits &= bits - 1) {
            enum pl_need need = pl_need_of((int)i * WORD_BITS + __builtin_ctzl(bits));

            if (need == PL_SERVE)
                return need;
            if (need > most)
                most = need;
        }
    return most;
}

/* Before it is known how far the kernel looks. */
static enum pl_need need_of_program(const struct call *c)
{
    struct call seen = *c;

    seen.nfds = pl_select_sees(c->nfds);
    return need_of_sets(&seen);
}

static int real_call(const struct call *c)
{
    fd_set *r = (fd_set *)c->set[READ], *w = (fd_set *)c->set[WRITE];
    fd_set *x = (fd_set *)c->set[EXCEPT];

    return c->is_pselect ? pl_real.pselect(c->nfds, r, w, x, c->ts, c->mask)
                         : pl_real.select(c->nfds, r, w, x, c->tv);
}

/* Sets *served when the sets have to be served after all: they changed before we slept. */
static int sleep_published(const struct call *c, bool *served)
{
    PL_SLEEP s = {fb_sleeper_select(c->nfds, c->set[READ], c->set[WRITE]), {0}};

    if (!s.sleeper || need_of_sets(c) == PL_SERVE) { /* pl_poll.c */
        *served = true;
        return 0;
    }
    pl_sleep_open(&s, __builtin_frame_address(0));
    return real_call(c);
}

static void put_wait(struct select_wait **w)
{
    if (*w)
        pl_block_put(&(*w)->block);
}

static struct select_wait *save_sets(const struct call *c, const void *frame)
{
    size_t words = words_of(c->nfds), fds = 0;
    size_t head = sizeof(struct select_wait) + SETS * words * sizeof(unsigned long);
    struct select_wait *w;

    for (size_t i = 0; i < words; i++)
        fds += (size_t)__builtin_popcountl(wanted(c, i));
    w = (struct select_wait *)pl_block_get(head + fds * sizeof(struct pollfd), frame, NULL);
    if (!w)
        return NULL;
    w->words = words;
    w->fds = (struct pollfd *)((char *)w + head);
    for (int s = 0; s < SETS; s++)
        for (size_t i = 0; i < words; i++)
            w->asked[(size_t)s * words + i] = c->set[s] ? c->set[s][i] & below(c->nfds, i) : 0;
    return w;
}

static nfds_t poll_set(struct select_wait *w)
{
    nfds_t n = 0;

    for (size_t i = 0; i < w->words; i++) {
        unsigned long any = 0;

        for (size_t s = 0; s < SETS; s++)
            any |= w->asked[s * w->words + i];
        for (; any; any &= any - 1) {
            unsigned long bit = any & -any;
            short events = 0;

            for (size_t s = 0; s < SETS; s++)
                if (w->asked[s * w->words + i] & bit)
                    events |= asks[s];
            w->fds[n++] = (struct pollfd){
                .fd = (int)i * WORD_BITS + __builtin_ctzl(any),
                .events = events,
            };
        }
    }
    return n;
}

/* Clears the application's sets and sets what holds. The number of bits, or -EBADF with the sets as
 * they were; 0: nothing that select would report (POLLHUP of a descriptor in writefds only). Only
 * what was not open when the call began is EBADF: closed later (waited), it is ready for everything
 * since Linux 5.17. */
static int answer(const struct call *c, const struct select_wait *w, nfds_t n, bool waited)
{
    int bits = 0;

    for (nfds_t i = 0; i < n && !waited; i++)
        if (w->fds[i].revents & POLLNVAL)
            return -EBADF;
    for (int s = 0; s < SETS; s++)
        if (c->set[s])
            memset(c->set[s], 0, w->words * sizeof(unsigned long));
    for (nfds_t i = 0; i < n; i++)
        for (int s = 0; s < SETS; s++) {
            size_t word;
            unsigned long bit;

            if (!(w->fds[i].revents & answers[s]) || !c->set[s])
                continue;
            word = (size_t)w->fds[i].fd / WORD_BITS;
            bit = 1ul << (w->fds[i].fd % WORD_BITS);
            if (!(w->asked[(size_t)s * w->words + word] & bit))
                continue;
            c->set[s][word] |= bit;
            bits++;
        }
    return bits;
}

/* poll ends for POLLHUP and POLLERR whatever was asked, select only for what answers[] has: a
 * descriptor in exceptfds alone that hung up would end poll again and again, so it is left out. */
static void drop_unwanted(struct select_wait *w, nfds_t n)
{
    for (nfds_t i = 0; i < n; i++)
        if (w->fds[i].revents)
            w->fds[i].fd = ~w->fds[i].fd;
}

static int serve(const struct call *c, struct select_wait *w, uint64_t deadline, uint32_t signals,
                 bool waited)
{
    nfds_t n = poll_set(w);

    for (;;) {
        int count = pl_poll_serve(w->fds, n, deadline, c->mask, signals, &waited);

        if (count < 0)
            return count;
        count = answer(c, w, n, waited);
        if (count != 0 || pl_expired(deadline))
            return count;
        waited = true;
        drop_unwanted(w, n);
    }
}

/* The kernel's select writes the time that remains, pselect (the libc function) does not. */
static void write_back(const struct call *c, uint64_t deadline)
{
    struct timespec left;

    if (c->is_pselect || !c->tv || deadline == PL_FOREVER)
        return;
    pl_remaining(deadline, &left);
    c->tv->tv_sec = left.tv_sec;
    c->tv->tv_usec = left.tv_nsec / 1000;
}

static bool deadline_of(const struct call *c, uint64_t *deadline)
{
    struct timespec ts;

    if (c->is_pselect) {
        if (c->ts && !pl_ts_valid(c->ts))
            return false;
        *deadline = pl_deadline_ts(c->ts);
        return true;
    }
    if (!c->tv) {
        *deadline = PL_FOREVER;
        return true;
    }
    if (c->tv->tv_sec < 0 || c->tv->tv_usec < 0)
        return false;
    ts.tv_sec = c->tv->tv_sec + c->tv->tv_usec / 1000000;
    ts.tv_nsec = c->tv->tv_usec % 1000000 * 1000;
    *deadline = pl_deadline_ts(&ts);
    return true;
}

/* What the kernel said of a plain set, asked again of streams that have boarded meanwhile. */
static int verify(const struct call *c, const struct select_wait *w)
{
    int left = 0;

    for (size_t i = 0; i < w->words; i++)
        for (unsigned long bits = wanted(c, i); bits; bits &= bits - 1) {
            struct pollfd p = {.fd = (int)i * WORD_BITS + __builtin_ctzl(bits)};
            unsigned long bit = bits & -bits;

            for (int s = 0; s < SETS; s++)
                if (c->set[s] && c->set[s][i] & bit)
                    p.events |= asks[s];
            p.revents = (short)(p.events | POLLERR | POLLHUP);
            pl_poll_verify(&p, 1, 1);
            for (int s = 0; s < SETS; s++) {
                if (!c->set[s] || !(c->set[s][i] & bit))
                    continue;
                if (p.revents & answers[s])
                    left++;
                else
                    c->set[s][i] &= ~bit;
            }
        }
    return left;
}

static void restore(const struct call *c, const struct select_wait *w)
{
    for (size_t s = 0; s < SETS; s++)
        if (c->set[s])
            memcpy(c->set[s], &w->asked[s * w->words], w->words * sizeof(unsigned long));
}

/* The time is over: has a stream boarded meanwhile, so that the kernel could not know? */
static bool boarded(const struct call *c, const struct select_wait *w)
{
    bool yes;

    restore(c, w);
    yes = need_of_sets(c) == PL_SERVE;
    if (!yes)
        answer(c, w, 0, true);
    return yes;
}

__attribute__((noinline)) static int do_select(struct call *c)
{
    PL_SECTION;
    struct select_wait *w __attribute__((cleanup(put_wait))) = NULL;
    enum pl_need need;
    uint32_t signals = rsk_sig.seen;
    uint64_t deadline;
    bool served = false;
    int count, saved = errno;

    need = c->nfds <= 0 || pl_tracks_nothing() ? PL_KERNEL : need_of_program(c);
    if (c->nfds > FD_SETSIZE && (need != PL_KERNEL || rsk_own_next(FD_SETSIZE) >= 0))
        c->nfds = most_numbers(c->nfds);
    if (need == PL_KERNEL || !deadline_of(c, &deadline))
        return PL_KERNELS_WAIT(real_call(c));
    w = save_sets(c, __builtin_frame_address(0));
    if (!w)
        return (int)pl_ret(-ENOMEM);
    if (need == PL_PUBLISH) {
        count = sleep_published(c, &served);
        if (!served) {
            if (count <= 0 && !(count == 0 && boarded(c, w)))
                return count;
            if (count > 0 && (count = verify(c, w)) > 0)
                return count;
            restore(c, w);
        }
        errno = saved;
    }
    count = serve(c, w, deadline, signals, need == PL_PUBLISH && !served);
    if (count < 0)
        restore(c, w);
    write_back(c, deadline);
    return (int)pl_ret(count);
}

PL_EXPORT int select(int n, fd_set *r, fd_set *w, fd_set *x, struct timeval *timeout)
{
    pl_ready();
    return do_select(&(struct call){
        .nfds = n,
        .set = {(unsigned long *)r, (unsigned long *)w, (unsigned long *)x},
        .tv = timeout,
    });
}
PL_ALIAS(__select, select);

PL_EXPORT int pselect(int n, fd_set *r, fd_set *w, fd_set *x, const struct timespec *timeout,
                      const sigset_t *mask)
{
    pl_ready();
    return do_select(&(struct call){
        .nfds = n,
        .set = {(unsigned long *)r, (unsigned long *)w, (unsigned long *)x},
        .ts = timeout,
        .mask = mask,
        .is_pselect = true,
    });
}
