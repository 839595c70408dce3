/*
 * stream.h - what the files of this folder ask of each other about a stream (conn.h).
 */
#ifndef FB_STREAM_H
#define FB_STREAM_H

#include "ipoib_fallback/conn.h"

/* ---- stream.c ---- */

void conn_reason(struct fb_conn *, int reason);
/* A half was started on a rail: what stat shows. */
void conn_boarded(struct fb_conn *);
/* Reads its addresses, and finds its rule; false if they cannot be had. */
bool conn_addresses(struct fb_conn *);
/* The same for the address that it was made to, which is the peer's where it has connected
 * and its own where it was accepted: all that is needed before a rail is asked for, unless
 * rules may decide. */
bool conn_target(struct fb_conn *);
/* Both addresses as the connecting side sees them. The connecting end's is 0 as long as
 * conn_target, and not conn_addresses, has asked. */
struct rsk_tuple conn_tuple(struct fb_conn *);
/* For the log: fb_who. */
static inline const char *conn_who(struct fb_conn *c, char text[static FB_WHO])
{
    return fb_who(&c->s, c->fd, text);
}
/* Whether connect() had a TCP socket is not asked for every connection (preload/pl_made.c). */
bool conn_other_protocol(const struct fb_conn *);
/* Has it an option that a rail cannot honour? Asks the kernel. */
bool conn_option(const struct fb_conn *);
/* Does the kernel tell when bytes came? Asks it. */
bool conn_stamps(const struct fb_conn *);
/* Reads O_NONBLOCK and the time-outs once, before the first boarding. */
void conn_settings(struct fb_conn *);
/* They are read again before the next wait. */
void conn_changed(struct fb_conn *);
/* The stream in a slot, with a reference, if it is still the one of that generation. */
struct fb_conn *conn_of_slot(uint32_t slot, uint32_t gen);
/* Calls fn with a reference for each live stream. */
void conn_each(void (*fn)(struct fb_conn *, void *), void *arg);
/* The one that is or was in a slot, without a reference: memory that stays. */
struct fb_conn *conn_in(uint32_t slot);
void fb_registry_forget(void); /* forked child */

/* ---- ready.c ---- */

/* The shard of the epoll instance that it should board on, with a reference; NULL: the common one.
 * Progress thread. */
struct rsk_shard *conn_shard(struct fb_conn *);
/* Nobody has the stream any more. */
void conn_shard_over(struct fb_conn *);

/* ---- plain.c ---- */

/* The boarding policy counts calls and bytes from here on, and the stream may ask for
 * a rail again. */
void conn_afresh(struct fb_conn *);
/* A receive found nothing, or less than it asked for: POLLIN will come anew. Before
 * anything can come. */
static inline void conn_no_data(struct fb_conn *c)
{
    atomic_fetch_add_explicit(&c->x->no_data, 1, memory_order_relaxed);
}
/* The same with the rx lock held, and without a locked instruction. */
static inline void conn_no_data_here(struct fb_conn *c)
{
    c->x->rx.no_data++;
}
/* A send was refused, a poll was told of no room, or what a ring had took TCP's: POLLOUT
 * will come anew. */
static inline void conn_no_room(struct fb_conn *c)
{
    atomic_fetch_add_explicit(&c->x->no_room, 1, memory_order_relaxed);
}
/* Called when the board policy may be satisfied. */
void conn_consider(struct fb_conn *);
/* Both digests, with which it will be proved, are to begin with the next bytes, unless they have
 * begun or been told so. False: neither had to be told. Any thread. */
bool conn_begin_digests(struct fb_conn *);

/* n bytes of v that begin at byte `at` of their direction have passed; in order. */
void conn_seen_tx(struct fb_conn *, uint64_t at, const struct iovec *v, int cnt, uint64_t n);
void conn_seen_rx(struct fb_conn *, uint64_t at, const struct iovec *v, int cnt, uint64_t n);
/* May bytes that end at `end` matter to the digest? */
static inline __attribute__((always_inline)) bool conn_seen_wants(const _Atomic uint8_t *mark,
                                                                  uint64_t end)
{
    return __builtin_expect(fb_digest_wants(atomic_load_explicit(mark, memory_order_relaxed), end),
                            0);
}

/* ---- wake.c ---- */

/* Wakes whoever waits for these events (RSK_*, FB_EV_STATE) on the stream. Any lock may be held
 * except watchers. */
void conn_wake(struct fb_conn *, unsigned events);
/* Changes a futex word and wakes who sleeps on it. */
void conn_wake_word(_Atomic uint32_t *word);
/* rsk_rail.notify */
void conn_notify(struct rsk_rail *, unsigned events);
/* Takes control messages off the rail into the mailbox and marks what is to be done. Any lock of
 * tx, rx may be held. Returns true if anything was taken. */
bool conn_mail(struct fb_conn *);
/* Serves tx_todo and rx_todo as far as the locks can be had. No lock held. */
void conn_serve(struct fb_conn *);
void conn_todo_tx(struct fb_conn *, uint32_t bits);
void conn_todo_rx(struct fb_conn *, uint32_t bits);

/* ---- tx.c: tx lock held unless said otherwise ---- */

void tx_serve_all(struct fb_conn *); /* the lock is free */
/* Unlocks, and serves what came meanwhile. */
static inline void tx_unlock(struct fb_conn *c)
{
    fb_unlock(&c->x->tx.lock);
    if (__builtin_expect(atomic_load(&c->x->tx_todo) != 0, 0))
        tx_serve_all(c);
}
/* Sends as much as can be had now. Count, -EAGAIN, or another -errno. *plain set: the caller shall
 * do a plain kernel send itself (tx_in was raised), outside the lock. */
ssize_t tx_try(struct fb_conn *, int fd, const struct iovec *v, int cnt, int flags, bool *plain);
void tx_serve(struct fb_conn *);
/* Begins to leave if on the rail. force: write the RESUME even if it could be owed. */
void tx_leave(struct fb_conn *, int reason, bool force);
/* Pushes a frame or residue on its way. True if the half is in T (or R) afterwards. */
bool tx_push(struct fb_conn *);
bool tx_can_send(struct fb_conn *, int fd);
/* How much of what was sent may be unread, under that bound (0: there is none); under
 * the rail's own. */
static inline uint32_t tx_bounded(const struct rsk_rail *rail, uint32_t bound)
{
    return bound && bound < rail->tx_size ? bound : rail->tx_size;
}
static inline uint32_t tx_most(const struct rsk_rail *rail)
{
    return tx_bounded(rail, rail->tx_limit);
}
/* As much as poll wants to say that bytes can be sent (rsk_much). A send itself takes
 * what there is. */
bool tx_has_room(struct rsk_rail *);

/* ---- owed.c ---- */

/* Posts owed.c's job: a RESUME that is owed while no rail is left to ask for it, or a LEAVE_REQ or
 * ECHO that the rail had no room for, will be written. tx or rx lock held. */
void tx_owes(struct fb_conn *);

/* ---- stall.c ---- */

/* The ring is full: if that lasts, the stream leaves. tx lock held. */
void tx_stalled(struct fb_conn *);

/* ---- grow.c ---- */

/* The ring is full: if that happens again and again, it should be larger. tx lock held. */
#define FB_BULK_RING (1024u * 1024)
void tx_short(struct fb_conn *);
/* Leaves, so that both ends board again with large rings. No lock held; progress thread. */
void grow_now(struct fb_conn *);

/* ---- rx.c: rx lock held unless said otherwise ---- */

void rx_serve_all(struct fb_conn *); /* the lock is free */
/* Unlocks, and serves what came meanwhile, which may concern the other half. */
static inline void rx_unlock(struct fb_conn *c)
{
    fb_unlock(&c->x->rx.lock);
    if (__builtin_expect((atomic_load(&c->x->rx_todo) | atomic_load(&c->x->tx_todo)) != 0, 0))
        rx_serve_all(c);
}
/* flags: MSG_PEEK, and RX_GOES_ON: the call has bytes already, and -EINTR says that it ends here
 * (rx_at_mark). */
enum { RX_GOES_ON = 1 << 25 };
ssize_t rx_try(struct fb_conn *, int fd, const struct iovec *v, int cnt, int flags);
bool rx_at_mark(struct fb_conn *, int fd);
/* Who has bytes already may receive so many more from the kernel without passing over urgent data
 * that comes meanwhile; -EAGAIN: there is nothing; -EINTR: the mark is next. */
ssize_t rx_goes_on(struct fb_conn *, int fd);
void rx_serve(struct fb_conn *);
/* Looks at the anchor for frames and ends as far as that is possible without an
 * application buffer. */
void rx_anchor(struct fb_conn *, int fd);
/* 1: a read would not block. 0: it would. */
int rx_readable(struct fb_conn *, int fd);
/* counts.c: fb_tally's; rx lock held. ended: the peer's end has come. */
struct fb_tally conn_tally(struct fb_conn *, int fd, bool ended);
/* The bytes that a plain receive brought while the guard went up. */
ssize_t rx_feed(struct fb_conn *, const struct iovec *v, int cnt, size_t n);
/* fb_rx_enter_for_good's call has ended: see fb_rx_leave. */
ssize_t rx_by_call_left(struct fb_conn *, ssize_t n, const struct iovec *v, int cnt);
/* Bytes that the application has not read: what makes TCP reset at close. */
bool rx_unread(struct fb_conn *, int fd);
/* Asks the sender to leave and to resume from here. Unless reason is RSN_IDLE the ring is read no
 * more: a hand-over, or an end. In sk, where the sender has left already, what is unread stays in
 * TCP if it is there. */
void rx_freeze(struct fb_conn *, int reason);
/* Tells the kernel of SHUT_RD, if it is its turn: what shutdown said, else 0. rx lock held. */
int rx_shut(struct fb_conn *);

/* Both directions are the kernel's. */
static inline bool conn_plain(const struct fb_conn *c)
{
    return c->x->tx.state == TX_T && c->x->rx.state == RX_t;
}

/* ---- end.c ---- */

/* Gives up what has not gone into TCP. Over shared memory the peer still finds it in the ring; but
 * if the peer has handed the stream over, its next reader may not notice the gap, so the connection
 * is reset. Takes the tx lock. */
void end_give_up(struct fb_conn *);
/* Whoever closes, or ends, waits for what it has left to say at most this long. */
#define END_NS 2000000000ull
/* If the SWITCH frame is what comes next, takes it, so that what the caller looks at includes the
 * ring behind it. Takes the rx lock. */
void end_pass_frame(struct fb_conn *, int fd);
/* Does it tell the peer of the close, by the frame that it has written, or is about to?
 * tx lock held. */
bool end_tells_of_close(struct fb_conn *);
/* Has the peer been asked for its frame, over a rail that holds? rx lock held. */
bool end_frame_is_due(struct fb_conn *);

/* ---- pin.c ---- */

/* Both halves begin to leave; neither is pinned. */
void end_leave(struct fb_conn *, int reason);
/* Takes a leave a step further. True: both halves are the kernel's, or there is
 * nothing to wait for. */
bool end_settled(struct fb_conn *, int reason);
/* True: nothing is in front, or unread in the ring alone, so whoever reads the socket without the
 * library from now on finds the bytes, or the end, that TCP would give. */
bool end_in_order(struct fb_conn *);
/* What the peer was to send again does not come: a SHUT_RD that was kept back goes to the kernel
 * now, or whoever has the socket next would wait for those bytes. Takes the rx lock. */
void end_unsettled(struct fb_conn *);
/* Repeats end_settled until it is true; false: not by the time `until`. of: the halves that have to
 * be settled (RSK_RX, RSK_TX); RSK_TX alone does not wait for the peer. Blocks. */
bool end_settle(struct fb_conn *, int reason, unsigned of, uint64_t until);

/* ---- sleepers.c ---- */

/* Scans the sleeping threads for this stream's descriptors. False: one of them cannot be woken by
 * POLLIN, or there are too many. Fills rx.must_see. */
bool sleepers_collect(struct fb_conn *);
bool sleepers_gone(struct fb_conn *);
void sleepers_forget(void); /* forked child: those threads are not there */

/* ---- harass.c: progress thread, for tests ---- */

void harass(void);        /* begins, if it is configured and has not begun */
void harass_forget(void); /* forked child */

/* ---- rdv.c, link.c: progress thread ---- */

void rdv_ask(struct fb_conn *);      /* posts: begin the rendezvous, or become reachable */
void rdv_now(struct fb_conn *);      /* progress thread: it waits for a rail, and there is room */
void rdv_forget(void);               /* forked child */
void link_hello(struct fb_conn *);   /* posted: a handshake message is in the mailbox */
void link_release(struct fb_conn *); /* posts: destroy the rail once neither half needs it */
void link_watch(struct fb_conn *);   /* posts: watch the anchor as the states need it */
/* rx lock held. Ends the watch: progress thread. */
void link_unwatch(struct fb_conn *);
/* rx lock held, any thread: fd, one of the anchor's numbers, is about to be closed. */
void link_drop(struct fb_conn *, int fd);
void link_linger(struct fb_conn *); /* posts: the application is gone, finish and close fd */
void link_serve(struct fb_conn *);  /* posts: conn_mail and conn_serve */
void link_push(struct fb_conn *);   /* the same, if this is the progress thread */
bool link_up(struct fb_conn *, struct rsk_rail *); /* progress thread: takes the rail, or false */
/* Progress thread: the rail that it has not taken goes back, and the peer hears why. */
void link_none(struct fb_conn *, struct rsk_rail *);
void link_end(struct fb_conn *, int reason); /* progress thread: the rail ends */
/* One timer per stream; fn begins with link_timer_fired and ends with fb_put. Progress thread. */
void link_timer(struct fb_conn *, uint64_t ns, void (*fn)(void *));
void link_timer_fired(struct fb_conn *);
void link_no_timer(struct fb_conn *);
/* After the application's close the timer is the lingering close's: only these set and cancel it,
 * and link_timer and link_no_timer do nothing. */
void link_linger_timer(struct fb_conn *, uint64_t ns, void (*fn)(void *));
void link_no_linger_timer(struct fb_conn *);
/* Runs fn(c) on the progress thread with a reference that fn drops, unless it is posted already: fn
 * clears the flag first of all. Any thread, also in a signal handler. */
void link_post_once(struct fb_conn *, uint32_t flag, enum fb_job, void (*fn)(void *));
/* For the progress thread, which is not to wait for who has this lock: it may copy to or from
 * memory that is paged in from who knows where, and everybody's streams would wait with him. False:
 * again(c) is called in a moment, with the caller's reference. */
bool link_lock(struct fb_conn *, struct fb_lock *, void (*again)(void *));
/* True while a closed stream still has something to say or to wait for. */
bool conn_lingers(struct fb_conn *);
void rdv_again(struct fb_conn *, int reason); /* progress thread: a rail or an attempt ended */

#endif
