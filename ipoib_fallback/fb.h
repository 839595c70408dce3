/*
 * fb.h - a TCP connection that changes track while it runs, for the layer that
 * intercepts calls. `struct fb_stream` stands for one open file description of an
 * established (or connecting) TCP socket; its kernel socket is the anchor.
 *
 * Two levels. While both gates are 0 the half is plain: the caller does the kernel call
 * itself between fb_rx_enter/fb_rx_leave (fb_tx_...), which only count. When a gate is up the
 * caller uses fb_recvv/fb_sendv, which do everything, blocking included.
 *
 * Results are counts or -errno; errno is never touched. Reference counting: every pointer that a
 * caller holds across a call is a reference (fb_get/fb_put); streams are type-stable memory (never
 * unmapped), so a stale pointer may be looked at but not used.
 */
#ifndef FB_FB_H
#define FB_FB_H

#include "ipoib_fallback/proof.h"
#include "ipoib_fallback/pub.h"
#include "rsock/wire.h"

#include <poll.h>
#include <stdbool.h>
#include <sys/socket.h>

struct fb_stream;

enum fb_role { FB_CONNECTED, FB_ACCEPTED };

/* Called by conn_wake with the watcher's list locked: must not block, must not take a stream's tx
 * or rx lock. Events: RSK_RX, RSK_TX, RSK_FAIL, and FB_EV_STATE: a half changed track, so what the
 * kernel should report for this socket changed (fb_kernel_events). */
struct fb_watcher {
    struct fb_watcher *next, **prev;
    void (*wake)(struct fb_watcher *, unsigned events);
};
enum { FB_EV_STATE = 16 };

struct fb_stream {
    /* 1: the half is not plain, use fb_recvv/fb_sendv. Written by the owner of the half's lock. */
    _Atomic uint8_t rx_gate, tx_gate;
    /* O_NONBLOCK of the description, kept by fcntl/ioctl/accept4 wrappers */
    _Atomic uint8_t nonblock;
    uint8_t role;
    _Atomic uint32_t rx_in, tx_in; /* plain kernel calls in flight */
    /* of rx_in, those that bytes and a frame do not wake or must not reach (MSG_WAITALL, recvmmsg,
     * splice from the socket, an ioctl or MSG_PEEK with an odd form): raised around them by the
     * wrappers, before fb_rx_enter; a guard is refused meanwhile (HARD-CASES 1) */
    _Atomic uint16_t rx_odd;
    _Atomic uint8_t rx_mark, tx_mark; /* of the digests: proof.h */
    _Atomic uint32_t refs;
    _Atomic uint32_t fds;   /* descriptors of this process that refer to it (dup) */
    struct fb_pub *pub;     /* counters; never NULL */
    _Atomic uint32_t calls; /* so far, for the boarding policy */
    /* The boarding policy has nothing to look at before so many calls: with CF_LOOKS in any case,
     * else as long as neither digest has begun. */
    _Atomic uint32_t look_at;
    _Atomic uint32_t flags; /* conn.h's; below are those that plain calls look at */
    uint32_t slot;
    /* The byte numbers that plain calls had reached when the last of them returned. A forked child
     * begins with these: this memory is its own copy, the counters are its parent's. They may be
     * too low where several threads are in such calls. */
    _Atomic uint64_t past_tx, past_rx;
    /* the rest is ipoib_fallback's own: conn.h */
};
enum {
    FB_ASKED = 1, /* bit 0: see fb_usual */
    FB_PINNED = 2,
    FB_LINKED = 8,
    FB_BY_CALL = 16777216,
    FB_LOOKS = 536870912
};
_Static_assert(sizeof(struct fb_stream) == 64, "all that a plain call looks at, in one cache line");

/* ---- life ---- */

/* Starts to track fd after connect() returned 0 or EINPROGRESS, or after accept(). fd is known to
 * be a TCP socket. NULL: cannot be tracked (no memory); the descriptor is then simply plain libc's.
 * The caller owns one reference and fds == 1. nonblock: O_NONBLOCK of fd if known, else -1. */
struct fb_stream *fb_track(int fd, enum fb_role role, int nonblock);
void fb_get(struct fb_stream *);
void fb_put(struct fb_stream *);
/* A gone-by lookup: takes a reference unless the stream is being freed. */
bool fb_tryget(struct fb_stream *);
/* dup made another descriptor. */
void fb_dup(struct fb_stream *, int newfd);
/* fb_pin with wait for several streams under one time limit: when that ends, if it begins now; and
 * for one of them, with that limit. */
uint64_t fb_pin_time(void);
void fb_pin_by(struct fb_stream *, int reason, uint64_t until);
/* Waits until the progress thread has done what it has been given so far. */
void fb_through(void);
/* Waits until closed connections need nothing of the library any more, two seconds at most. ends:
 * this process ends, so what is not in TCP by then is given up, unless another process may have
 * the connection. */
void fb_closed_over(bool ends);
/* One descriptor is about to be closed by the caller. When it is the last one, does what
 * TCP's close means for the rail: the stream leaves, what must linger goes to the progress
 * thread on a descriptor of its own. The caller then calls the kernel's close(fd) in any
 * case. Drops no reference. */
void fb_close(struct fb_stream *, int fd);
/* The kernel has closed it after that. The caller had a reference. */
void fb_closed(struct fb_stream *);
/* The same as fb_close where the number stays, as the kernel's alone. */
void fb_forget(struct fb_stream *, int fd);
/* The kernel has just disconnected it, which was a reset: nothing is done on the socket any more,
 * which may be connected anew. */
void fb_disconnected(struct fb_stream *, int fd);
/* connect() to nobody, AF_UNSPEC, with len bytes of address: the stream leaves its rail, nothing
 * is waited for, and what it holds ends in a reset. Who sleeps in its calls wakes, and does not
 * look at the socket any more. 0, and fb_disconnected() follows for each of its numbers; or
 * -errno, and it goes on. */
int fb_disconnect(struct fb_stream *, int fd, const void *to, socklen_t len);
/* shutdown(): leaves the directions concerned, then the kernel's shutdown. 0 or -errno. */
int fb_shutdown(struct fb_stream *, int fd, int how);
/* Is it shut for reading while what is unread lies on a rail, or is on its way from there? Then no
 * more of it should be asked to come by TCP than the socket takes, since shutdown has told the
 * kernel of the other direction only. */
bool fb_shut_late(const struct fb_stream *);
/* The stream must be carried by the kernel alone when this returns, and stays there for `reason`
 * (a pinned stream never boards). wait: both directions have been handed over, at most 5 s. */
void fb_pin(struct fb_stream *, int reason, bool wait);
/* The same for a call that only receives; waits. The other direction leaves, too, but tells the
 * peer with its next bytes only: whoever sends by the kernel needs fb_pin, or fb_pin_tx. */
void fb_pin_rx(struct fb_stream *, int reason);
/* The same for a call that only sends, by the kernel: what was sent before is in the socket when
 * this returns 0. Waits for that as a send with these flags (MSG_DONTWAIT) waits for room. Or
 * -errno, with which the call ends: -EAGAIN, -EINTR, what is to be told; -EPIPE is returned
 * without SIGPIPE. */
int fb_pin_tx(struct fb_stream *, int fd, int reason, int flags);
/* fb_pin with wait, for who will use the socket without the library, in these directions (RSK_RX,
 * RSK_TX). False: the peer's library has not handed it back by then, or what is unread is followed
 * by something of ours, or is in the ring alone: nobody but the library may use it. RSN_SHARED:
 * somebody may have it from now on, so that a close here is no end. */
bool fb_hand_over(struct fb_stream *, int reason, unsigned directions);
/* The same for several in one time, as fb_pin_by. */
bool fb_hand_over_by(struct fb_stream *, int reason, unsigned directions, uint64_t until);
/* An SCM_RIGHTS message is about to take it to another process. fb_may_give is asked before
 * fb_hand_over; if it was true, fb_giving is called after that, and fb_not_given if the message
 * could not be sent. */
bool fb_may_give(struct fb_stream *);
void fb_giving(struct fb_stream *, int fd);
void fb_not_given(struct fb_stream *);
/* A TCP socket that is not tracked is passed on in a message, over a socket that process `giver`
 * has made, or has come in one and will not be tracked. If giver has a word for it (given.c), that
 * now says: came often. */
void fb_untracked(int fd, int32_t giver);
/* As fb_track, of what has come in such a message, from that process as it seems. NULL also: that
 * process has not sent it, or somebody has read or written already, or that cannot be known. It is
 * on TCP until that process has closed it (given.c). */
struct fb_stream *fb_arrived(int fd, int32_t giver);
/* Another process may hold the description from now on: a close is no end. If it may use it, it
 * is also pinned. */
void fb_maybe_shared(struct fb_stream *);
/* All streams of the process leave. FB_NOBODY: no child is concerned, as before exec. Else: before
 * a fork whose child cannot ask for them; they are also pinned (RSN_SHARED). FB_CHILD_ALONE: the
 * process ends with the fork, and a stream that is not TCP's alone in time is reset. */
enum fb_heirs { FB_NOBODY, FB_CHILD_AS_WELL, FB_CHILD_ALONE };
void fb_leave_all(int reason, enum fb_heirs heirs);
/* The process is ending: leave all within the linger limit, then be passive. */
void fb_exit(void);
/* In a forked child: every stream is forgotten; the caller clears its own tables. */
void fb_after_fork_child(void);
/* Its addresses in words, for a line of log: "10.0.0.1:80 with 10.0.0.2:4000", its own first. Those
 * that it has not needed yet the kernel is asked for. Takes no lock and no memory. Returns text. */
enum { FB_WHO = 128 };
const char *fb_who(const struct fb_stream *, int fd, char text[static FB_WHO]);
/* It has asked for no rail, or will never have one, and no child knows of it: fb_close will concern
 * this process's memory alone. */
bool fb_untouched(const struct fb_stream *);
/* Another process may have the same socket. */
bool fb_shared(struct fb_stream *);
/* Has a rail, or may be about to get one: then fb_close may keep the socket under a number of the
 * library's, also where both halves are plain. */
bool fb_may_linger(const struct fb_stream *);
/* May the stream linger by now although no call of the application's came between, because its peer
 * has asked for it? Or may the progress thread be asking the kernel about it, which keeps the
 * socket, and what is registered of it, for a moment longer than close? For whoever is about to
 * close its last number: from here on it is too late for the peer to ask. */
bool fb_may_be_found(struct fb_stream *);
/* True if this process has ever tracked a stream. */
bool fb_ever_tracked(void);

/* ---- plain halves ---- */

/* The usual case on a rail, for the price of a load. Also for who has no reference. */
static inline bool fb_gate_is_up(const struct fb_stream *s, bool rx)
{
    return atomic_load_explicit(rx ? &s->rx_gate : &s->tx_gate, memory_order_relaxed);
}
/* For who has looked at the gate, and it was not. */
static inline bool fb_count_in(struct fb_stream *s, bool rx)
{
    /* seq_cst counter then gate; the guard does gate then counter: one of the two
     * sees the other. */
    atomic_fetch_add(rx ? &s->rx_in : &s->tx_in, 1);
    if (__builtin_expect(atomic_load(rx ? &s->rx_gate : &s->tx_gate) == 0, 1))
        return true;
    atomic_fetch_sub(rx ? &s->rx_in : &s->tx_in, 1);
    return false;
}
static inline bool fb_rx_enter(struct fb_stream *s)
{
    return !__builtin_expect(fb_gate_is_up(s, true), 0) && fb_count_in(s, true);
}
/* Where fb_rx_enter is false, in a process that stays plain for good (fb_plain_for_good): may the
 * application's own call, without MSG_PEEK and MSG_WAITALL, receive what the kernel has next,
 * frames and all? fb_rx_leave takes them out, as for a call that was under way when the guard went
 * up; FB_RETRY: the call again. One at a time. */
bool fb_rx_enter_for_good(struct fb_stream *s);
static inline bool fb_tx_enter(struct fb_stream *s)
{
    return !__builtin_expect(fb_gate_is_up(s, false), 0) && fb_count_in(s, false);
}
/* The kernel call returned n (count or -errno) into v with these recv flags. Returns what the
 * application gets, or FB_RETRY: the bytes were all frames, call fb_recvv instead. */
#define FB_RETRY (-4096)
ssize_t fb_rx_leave(struct fb_stream *, int fd, ssize_t n, const struct iovec *v, int cnt,
                    int flags);
void fb_tx_leave(struct fb_stream *, ssize_t n, const struct iovec *v, int cnt);
/* The same for sendfile(2), whose bytes came from `in` (-1: they cannot be had), beginning with its
 * byte number `from` (-1: they are those before its position). */
void fb_tx_leave_file(struct fb_stream *, ssize_t n, int in, int64_t from);

/* A receive has been counted out (rx_in), and the gate has gone up since it was counted in:
 * wakes those who wait for it to be over, and those who were told meanwhile that nothing
 * can be received. */
void fb_rx_out(struct fb_stream *);
/* Would fb_rx_leave or fb_tx_leave do no more than fb_count does? Yes if n > 0; if n < 0, of a send
 * only where the stream has asked for no rail; and if n is 0, of a receive where the stream has
 * wanted no rail, or stays on TCP, and the library keeps no error of the kernel's. And only if the
 * stream never had a rail, the gate is down (receives), nobody else is in such a call, nothing is
 * remembered or copied of the bytes, and the boarding policy has nothing to look at, or has
 * decided. *end: the direction's bytes so far, with these. */
static inline __attribute__((always_inline)) bool fb_usual(struct fb_stream *s, ssize_t n, bool rx,
                                                           uint64_t *end)
{
    const struct fb_pub *pub = s->pub;
    uint32_t flags = atomic_load_explicit(&s->flags, memory_order_acquire);
    uint64_t unusual;

    *end = atomic_load_explicit(rx ? &pub->rx : &pub->tx, memory_order_relaxed) + (uint64_t)n;
    /* One branch, and few bytes: rsock/section.h. */
    unusual = flags & (FB_LINKED | FB_BY_CALL);
    /* Both digests are to begin later: so few bytes have passed that none of the policy's bounds is
     * near. Or it has said from when on it looks again. */
    unusual |= ~flags & FB_ASKED &
               ((atomic_load_explicit(&s->calls, memory_order_relaxed) + 1 >=
                 atomic_load_explicit(&s->look_at, memory_order_relaxed)) |
                (((flags & FB_LOOKS) == 0) &
                 ((atomic_load_explicit(&s->rx_mark, memory_order_relaxed) != FB_DIGEST_LATER) |
                  (atomic_load_explicit(&s->tx_mark, memory_order_relaxed) != FB_DIGEST_LATER))));
    unusual |= atomic_load_explicit(rx ? &s->rx_in : &s->tx_in, memory_order_acquire) ^ 1;
    unusual |= atomic_load_explicit(&pub->tap, memory_order_relaxed);
    unusual |= fb_digest_wants(
        atomic_load_explicit(rx ? &s->rx_mark : &s->tx_mark, memory_order_relaxed), *end);
    if (rx)
        unusual |= atomic_load(&s->rx_gate);
    else
        unusual |= n < 0 ? flags & FB_ASKED : 0;
    /* Where the library keeps an error, the gate for sending is up. */
    return (n != 0 ||
            (rx && (flags & (FB_ASKED | FB_PINNED)) != FB_ASKED && !fb_gate_is_up(s, false))) &&
           !unusual;
}
static inline __attribute__((always_inline)) void fb_count(struct fb_stream *s, ssize_t n, bool rx,
                                                           uint64_t end)
{
    struct fb_pub *pub = s->pub;

    if (__builtin_expect(n > 0, 1)) {
        atomic_fetch_add_explicit(rx ? &pub->rx : &pub->tx, (uint64_t)n, memory_order_relaxed);
        atomic_store_explicit(rx ? &s->past_rx : &s->past_tx, end, memory_order_relaxed);
        atomic_store_explicit(&s->calls, atomic_load_explicit(&s->calls, memory_order_relaxed) + 1,
                              memory_order_relaxed);
    }
    atomic_fetch_sub(rx ? &s->rx_in : &s->tx_in, 1);
    if (rx && __builtin_expect(atomic_load(&s->rx_gate), 0))
        fb_rx_out(s);
}

/* ---- any half ---- */

/* recv/send family. flags: MSG_PEEK, MSG_DONTWAIT, MSG_WAITALL, MSG_NOSIGNAL, MSG_MORE(send) are
 * served, any other makes the stream leave first. Blocking, SO_RCVTIMEO/SNDTIMEO and signals as
 * recv(2)/send(2). -EPIPE is returned without SIGPIPE: the caller raises it unless MSG_NOSIGNAL. */
ssize_t fb_recvv(struct fb_stream *, int fd, const struct iovec *v, int cnt, int flags);
/* MSG_PEEK at the first bytes, whatever SO_PEEK_OFF says. */
ssize_t fb_peekv(struct fb_stream *, int fd, const struct iovec *, int cnt, int flags);
ssize_t fb_sendv(struct fb_stream *, int fd, const struct iovec *v, int cnt, int flags);
/* The same for more bytes of a call that has moved some: a handler ends its wait, also
 * with SA_RESTART. */
ssize_t fb_recv_on(struct fb_stream *, int fd, const struct iovec *v, int cnt, int flags);
ssize_t fb_send_on(struct fb_stream *, int fd, const struct iovec *v, int cnt, int flags);
/* What most of those calls are on a rail: bytes to or from one buffer, and nothing else to be done.
 * How many; -EAGAIN: none, and the call does not wait for any; 0: it is not that, and nothing has
 * happened. Never sleeps; a receive that may block spins for some us. The caller needs no
 * reference: what it has may have become another stream since it has looked fd up, and is taken
 * only if it is that of fd now. */
ssize_t fb_recv_quick(struct fb_stream *, int fd, void *p, size_t most, int flags);
size_t fb_send_quick(struct fb_stream *, int fd, const void *p, size_t n, int flags);
/* There is a rail to board. */
bool fb_may_board(const struct fb_stream *);
/* It has wanted a rail, and may change track. */
bool fb_may_change(const struct fb_stream *);
/* SO_ERROR, where the kernel has none: an error that the library has taken from it,
 * once. 0 or -errno. */
int fb_so_error(struct fb_stream *);
/* What the kernel has just said of a connect that did not wait, or is tried again: an errno, or 0.
 * One that came to nothing is not counted as a connection. */
void fb_connect_said(struct fb_stream *, int err);
/* The kernel itself has just told the program an error of the stream, which read nothing
 * (SO_ERROR, recvmmsg, splice). If TCP has ended with it, the end of the stream is not told as an
 * error a second time. */
void fb_told(struct fb_stream *, int fd);
/* An error that a call met when it already had something to return: the next call's. err:
 * -errno. */
void fb_keep_error(struct fb_stream *, int err);
/* What comes next is urgent data, before which TCP ends a receive that has bytes. */
bool fb_at_mark(struct fb_stream *, int fd);
/* FIONREAD and SIOCOUTQ as TCP counts them. */
int fb_inq(struct fb_stream *, int fd);
/* What TCP_INQ has TCP tell beside the bytes of a recvmsg that was fb_recvv; -1: it was
 * not asked for. */
int fb_inq_told(struct fb_stream *, int fd);
/* Does a recvmsg of the kernel's tell when the bytes came (SO_TIMESTAMP)? Of a stream that
 * is not plain. */
bool fb_stamps(struct fb_stream *);
int fb_outq(struct fb_stream *, int fd);

/* ---- readiness ---- */

/* True if both halves are plain: poll the kernel and nothing else. Sequentially consistent, as what
 * comes before it is: who sleeps has said so, and then looks here. */
static inline bool fb_plain(const struct fb_stream *s)
{
    return !atomic_load(&s->rx_gate) && !atomic_load(&s->tx_gate);
}
/* The kernel alone can receive from it. */
static inline bool fb_plain_rx(const struct fb_stream *s)
{
    return !atomic_load(&s->rx_gate);
}
/* Which of these POLL* bits the kernel's poll of the anchor can answer now (hints that fb_ready
 * then verifies); the others come from wakes. ERR and HUP always come from the kernel too. */
short fb_kernel_events(struct fb_stream *, short events);
/* Which of these POLLIN|POLLOUT|POLLRDHUP|POLLHUP|POLLERR... hold now, asked of ring and kernel as
 * one stream; exact. May do system calls, never blocks. */
short fb_ready(struct fb_stream *, int fd, short events);
/* The same for poll and select, whose caller hears that there is nothing, or no room: whoever waits
 * for edges gets one then. */
short fb_poll(struct fb_stream *, int fd, short events);
/* Not plain, but nothing of it is on a rail, or owed, or kept: if the kernel's poll says nothing,
 * fb_poll would not either, and is not needed. True for a moment only. */
bool fb_kernels_alone(struct fb_stream *);
/* What fb_poll does for who waits for edges: of these events the caller hears those. */
void fb_said(struct fb_stream *, short asked, short got);
/* Asks for wakes. fb_watch adds the watcher; fb_arm asks the rail to tell of POLLIN/POLLOUT once
 * more (after each wake, before sleeping) and returns those that hold already. shard: an epoll
 * instance's own, as a hint where the next rail should be; NULL: the hint stays as it was. The
 * stream takes its own reference to it. fb_unwatch takes watcher and hint away. A rail that the
 * stream has stays on that shard, and somebody has to drain it for those who wait elsewhere; one
 * that is just being made on it will not be used. */
void fb_watch(struct fb_stream *, struct fb_watcher *, struct rsk_shard *);
void fb_unwatch(struct fb_stream *, struct fb_watcher *, struct rsk_shard *);
short fb_arm(struct fb_stream *, int fd, short events);
/* Two numbers for who waits for edges: each changes with everything that TCP would make an edge of.
 * in: a byte or the end has come, or a receive or poll was told that there is no more; out: a byte
 * was sent, or a send or poll was told that there is no room. POLLERR and POLLPRI are in neither.
 * 0: it cannot be had, because others may be reading or sending; or is of no use: the stream has
 * asked for no rail, or is pinned and never had one. May do system calls, never blocks. */
struct fb_tally {
    uint64_t in, out;
};
struct fb_tally fb_tally(struct fb_stream *, int fd);
/* What a thread may sleep on by FUTEX_WAIT (not _PRIVATE) instead: whoever has news of a word
 * changes it first. */
struct fb_words {
    struct rsk_rail *rail; /* referenced; NULL: there are no words, or not any more */
    _Atomic uint32_t *word[2];
    uint32_t value[2];
    unsigned n; /* 1 or 2 */
};
/* How many words that would be, of a stream as it is now; 0: it has none. Arms nothing. */
unsigned fb_has_words(struct fb_stream *, short events);
/* fb_arm for a thread that wants to sleep on words alone, where a peer itself wakes who sleeps on a
 * rail. It tells of the bytes and of the room that are asked for; of everything else the watcher
 * does. Without words (rail is NULL) it has done what fb_arm does. With them: 0, and fb_words_put
 * when the sleep is over. */
short fb_arm_words(struct fb_stream *, int fd, short events, struct fb_words *);
void fb_words_put(struct fb_words *);
/* Bytes to be read on a rail whose ring is read in place, and nothing else: FB_SOME, FB_NONE.
 * FB_CLOSER if fb_ready has to look; FB_BUSY while another thread is at work on the stream. Waits
 * for nobody, and takes no lock of another thread's. */
enum fb_sight { FB_BUSY, FB_CLOSER, FB_NONE, FB_SOME };
enum fb_sight fb_sight(struct fb_stream *, short events);
/* The same, and if it is FB_SOME or FB_NONE, fb_arm as well. tally: then fb_tally's, unless
 * NULL. */
enum fb_sight fb_sight_arm(struct fb_stream *, int fd, short events, struct fb_tally *tally);
/* For pollers that spin: looks at ring state only, no system call, may say 0 wrongly. */
short fb_peek_ready(struct fb_stream *, short events);
/* Is the stream on a rail whose news come by another shard than this one? */
bool fb_news_elsewhere(struct fb_stream *, const struct rsk_shard *);
/* For how many ns a wait may spin before it sleeps, at most. Unless it is configured, that is the
 * time in which a peer's library has answered while everybody slept, within bounds: spinning longer
 * cannot pay, and with less two ends that sleep in turn never get out of it. */
uint32_t fb_spin_most(void);
/* Has a stream of this process had a rail on a wire that is slow to wake? */
bool fb_spin_slow(void);

/* ---- sleepers: threads that sleep in the kernel's poll or select on plain sockets ---- */

struct fb_sleeper; /* one per thread */
/* Publishes that this thread is about to sleep on these (exactly one of pfd and the sets is used),
 * full fence. Test for rails after this call, then sleep, then fb_sleeper_end. */
struct fb_sleeper *fb_sleeper_poll(const struct pollfd *pfd, nfds_t n);
struct fb_sleeper *fb_sleeper_select(int nfds, const void *readfds, const void *writefds);
void fb_sleeper_end(struct fb_sleeper *);
/* A thread that went to sleep before a number was given to a socket does not sleep on that socket,
 * whatever its set says. fb_sleeps_now: a mark for now, never 0. fb_sleeps_since: the stream's
 * number was given at that mark (0: not known); called before it is in the table. Accepted streams
 * have theirs from fb_track. Any thread. */
uint64_t fb_sleeps_now(void);
void fb_sleeps_since(struct fb_stream *, uint64_t since);
/* May there be a filter for system calls, which kills who makes one that it does not
 * know? Any thread. */
bool fb_filtered(void);
/* memcpy from the application's memory (in) or to it, where the address may be bad. False: it is,
 * and the kernel would say EFAULT. By a system call, unless a filter may forbid that: then by
 * memcpy itself. */
bool fb_copy(void *to, const void *from, size_t n, bool in);
/* A number for the record's present sleep; and: ends the record's sleep, if it is still the
 * one of that number. For whoever finds a sleep that a handler has jumped out of. NULL:
 * nothing is done. */
uintptr_t fb_sleeper_sleep(struct fb_sleeper *);
void fb_sleeper_left(struct fb_sleeper *, uintptr_t sleep);

/* ---- settings of the socket, after the kernel has taken them ---- */

void fb_set_nonblock(struct fb_stream *, bool on);
/* setsockopt succeeded with this value (RCVLOWAT, NODELAY; -1 for a time-out of less than none;
 * else 0): remembers what concerns a rail, pins for options that it cannot honour. */
void fb_sockopt(struct fb_stream *, int level, int name, int value);
/* SO_PEEK_OFF of a receiving half that is not plain: kept here, as the kernel's is for looks of the
 * library's, too. False: it is the kernel's. -1: there is none. */
bool fb_peek_from(struct fb_stream *, int from);
int fb_peeks_from(struct fb_stream *);
/* TCP_CORK of a sending half that is on a rail, which holds nothing back: noted, and set when the
 * half leaves. False: it is not, or there is no int at `value`, and the kernel is to be called. */
bool fb_cork(struct fb_stream *, const void *value);
/* Sets what was noted, for a call that asks the kernel. */
void fb_cork_set(struct fb_stream *);

#endif
