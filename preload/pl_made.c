/*
 * pl_made.c - numbers of TCP sockets that are not connected yet. What connect() makes of them may
 * go on a rail only if nobody else can use the socket: no other number, no FILE, no other process.
 *
 *   made    socket() gave it for TCP, and it stands for its socket alone
 *   twice   made, but there was a dup; whether both are still there is seen at connect
 *   neither not known, or known to be somebody else's as well
 *
 * A number is wrongly held for TCP if no wrapper saw its close, and it then became an internet
 * socket of another kind where no wrapper saw that either; or if the kernel has made something else
 * of it (Multipath TCP, by a BPF program). Hence a stream is asked for its protocol before it gets
 * a rail (rdv.c), and until then its calls are the kernel's.
 *
 * Whether a fork has copied a socket: begun and over count forks, and all that is known is
 * forgotten at both. A socket made or connected in between is not known either, so it does not
 * matter when the kernel copies the table.
 *
 * Any thread, also in signal handlers; no lock. A vfork child, which has our memory,
 * changes nothing.
 */
#include "preload/pl_own.h"

#include "rsock/sys.h"

#include <fcntl.h>

enum { MADE = 1 << 20, WORDS = MADE / 64 }; /* higher numbers are not known */

typedef _Atomic uint64_t numbers[WORDS];
static numbers made, twice;
static numbers filed; /* fdopen made a FILE of it */
/* Of those made: the lower half of fb_sleeps_now() then; 0: not known. Nor is it of higher
 * numbers. */
enum { TIMED = 1 << 16 };
static _Atomic uint32_t since[TIMED];
static _Atomic unsigned most; /* nothing was ever noted above it */
static _Atomic uint32_t forks_begun, forks_over;

static bool has(numbers *in, unsigned n)
{
    return n < MADE && (atomic_load_explicit(&(*in)[n / 64], memory_order_relaxed) >> (n % 64) & 1);
}

static void note(numbers *in, unsigned n)
{
    unsigned top = atomic_load_explicit(&most, memory_order_relaxed);

    while (n < MADE && n > top && !atomic_compare_exchange_weak(&most, &top, n))
        ;
    if (n < MADE)
        atomic_fetch_or(&(*in)[n / 64], 1ull << (n % 64));
}

bool pl_made_ever(void)
{
    return atomic_load_explicit(&most, memory_order_relaxed) != 0;
}

static void forget(numbers *in, unsigned n)
{
    if (has(in, n))
        atomic_fetch_and(&(*in)[n / 64], ~(1ull << (n % 64)));
}

bool pl_made(int fd)
{
    return has(&made, (unsigned)fd) || has(&twice, (unsigned)fd);
}

/* While a fork is under way it is a value that none_since() does not know. */
uint32_t pl_made_begin(void)
{
    uint32_t over = atomic_load(&forks_over), begun = atomic_load(&forks_begun);

    return over == begun ? begun : begun - 1;
}

static bool none_since(uint32_t begun)
{
    return atomic_load(&forks_begun) == begun && atomic_load(&forks_over) == begun;
}

void pl_made_note(int fd, uint32_t begun)
{
    if ((unsigned)fd < TIMED)
        atomic_store_explicit(&since[fd], (uint32_t)fb_sleeps_now(), memory_order_relaxed);
    note(&made, (unsigned)fd);
    if (!none_since(begun))
        forget(&made, (unsigned)fd);
}

/* Fewer than 2^32 numbers have been given since. */
uint64_t pl_made_since(int fd)
{
    uint32_t then = fd < TIMED && has(&made, (unsigned)fd)
                        ? atomic_load_explicit(&since[fd], memory_order_relaxed)
                        : 0;
    uint64_t now;

    if (!then)
        return 0;
    now = fb_sleeps_now();
    return now - (uint32_t)((uint32_t)now - then);
}

void pl_made_forget(int fd)
{
    unsigned n = (unsigned)fd;

    if ((has(&made, n) || has(&twice, n) || has(&filed, n)) && pl_is_owner_here()) {
        forget(&made, n);
        forget(&twice, n);
        forget(&filed, n);
    }
}

void pl_made_forget_range(unsigned int first, unsigned int last)
{
    unsigned top = atomic_load(&most);

    for (unsigned n = first; n <= last && n <= top; n = (n | 63) + 1)
        for (unsigned i = n;
             (made[n / 64] | twice[n / 64] | filed[n / 64]) && i <= (n | 63) && i <= last; i++)
            pl_made_forget((int)i);
}

void pl_made_dup(int fd, int newfd)
{
    if (!pl_made(fd) || !pl_is_owner_here())
        return;
    note(&twice, (unsigned)newfd);
    note(&twice, (unsigned)fd);
    forget(&made, (unsigned)fd);
    /* Connected as newfd, nobody would know of the registration: for all that is known it is
     * somebody else's. */
    if (pl_epoll_marked(fd)) {
        pl_made_away(newfd);
        pl_made_away(fd);
    }
}

void pl_made_away(int fd)
{
    if (!pl_made(fd) || !pl_is_owner_here())
        return;
    forget(&made, (unsigned)fd);
    forget(&twice, (unsigned)fd);
}

void pl_made_file(int fd)
{
    pl_made_away(fd);
    if (pl_is_owner_here())
        note(&filed, (unsigned)fd);
}

bool pl_made_has_file(int fd)
{
    return has(&filed, (unsigned)fd);
}

static bool socket_cookie(int fd, uint64_t *cookie)
{
    socklen_t len = sizeof(*cookie);

    return sys_getsockopt(fd, SOL_SOCKET, SO_COOKIE, cookie, &len) == 0;
}

bool pl_same_socket(int one, int two)
{
    uint64_t a = 0, b = 0;

    return socket_cookie(one, &a) && socket_cookie(two, &b) && a == b;
}

static void forget_where(bool (*holds)(int fd, int of), int of)
{
    for (unsigned i = 0; i <= atomic_load(&most) / 64; i++)
        for (uint64_t left = atomic_load(&made[i]) | atomic_load(&twice[i]); left;
             left &= left - 1) {
            int fd = (int)(i * 64) + __builtin_ctzll(left);

            if (holds(fd, of))
                pl_made_away(fd);
        }
}

/* One of the two sees the other: pl_made_dup notes, and then looks at the mark. */
void pl_made_registered(int fd)
{
    if (has(&twice, (unsigned)fd) && pl_is_owner_here())
        forget_where(pl_same_socket, fd);
}

static bool any(int fd, int unused)
{
    (void)fd, (void)unused;
    return true;
}

static bool survives_exec(int fd, int unused)
{
    (void)unused;
    return sys_fcntl(fd, F_GETFD, 0) == 0;
}

void pl_made_forking(void)
{
    atomic_fetch_add(&forks_begun, 1);
    forget_where(any, -1);
}

void pl_made_forked(void)
{
    forget_where(any, -1);
    atomic_fetch_add(&forks_over, 1);
}

void pl_made_child(void)
{
    forget_where(any, -1);
    atomic_store(&forks_over, atomic_load(&forks_begun));
}

void pl_made_inherited(void)
{
    forget_where(survives_exec, -1);
}

static bool still_twice(int fd)
{
    for (unsigned i = 0; i <= atomic_load(&most) / 64; i++)
        for (uint64_t left = atomic_load(&twice[i]); left; left &= left - 1) {
            int other = (int)(i * 64) + __builtin_ctzll(left);

            if (other != fd && pl_same_socket(other, fd))
                return true;
        }
    return false;
}

void pl_made_got(int fd)
{
    forget_where(pl_same_socket, fd);
}

bool pl_made_alone(int fd)
{
    uint32_t begun = pl_made_begin();
    bool alone = has(&made, (unsigned)fd) || (has(&twice, (unsigned)fd) && !still_twice(fd));

    if (pl_is_owner_here()) {
        forget(&made, (unsigned)fd);
        forget(&twice, (unsigned)fd);
    }
    return alone && none_since(begun);
}
