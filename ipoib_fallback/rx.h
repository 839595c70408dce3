/*
 * rx.h - between rx.c and its neighbours rx_*.c: the receiving half's own parts. The rx lock is
 * held in all of them unless it is said that it is free; the rx_front_* functions from rx_front_due
 * on take it themselves.
 */
#ifndef FB_RX_H
#define FB_RX_H

#include "ipoib_fallback/stream.h"

/* The only place that changes the state; returns the table's actions. */
uint8_t rx_to(struct fb_conn *, enum fb_rx_event);
/* The stream cannot be trusted any more: ECONNRESET after what was delivered.
 * Returns -ECONNRESET. */
int rx_broken(struct fb_conn *, const char *what);
/* At S, or inside the SWITCH frame. 1: the state changed; 0: nothing to read yet; an error ends the
 * stream (rx.end is set and 1 returned). */
int rx_switch(struct fb_conn *, int fd);
/* Who was not shown what is beyond S is woken as soon as it can be read. */
void rx_look_again(struct fb_conn *);
/* A whole frame lies in rx.frame: checks it and takes the step. 0 or -ECONNRESET. */
int rx_take_frame(struct fb_conn *);
bool rx_frame_ours(struct fb_conn *, const struct fb_frame *, uint8_t type);
/* A SWITCH of ours has been seen at S: the ring begins there, and the sender is told. */
void rx_begin(struct fb_conn *, const struct fb_frame *);
/* Asks the sender to leave and to send again in TCP what is beyond R. */
void rx_ask_back(struct fb_conn *, uint64_t R, int reason);
/* Tells the sender of the SWITCH frame that the ring has begun; once. */
void rx_echo(struct fb_conn *, const struct fb_frame *);
/* gS, and bytes before S are unread: how many can be read beyond S. */
size_t rx_ahead_count(struct fb_conn *, int fd);
/* The same, and the kernel's bytes before S are in v: copies those beyond. Returns how many. */
size_t rx_ahead_peek(struct fb_conn *, int fd, const struct iovec *v, int cnt);
/* sk, and n bytes of the ring are in v, peeked: copies what lies in the kernel behind the overlap,
 * if that comes next. */
size_t rx_overlap_peek(struct fb_conn *, int fd, const struct iovec *v, int cnt, size_t n);
/* gS, `more` bytes have been received that are not counted yet, and no plain receive is under way.
 * Has somebody else received some, by a call that nobody sees or in another process? Then they are
 * counted; if the switch is, or may be, among them, the stream has ended here, before a frame is
 * taken for data. True: what was seen before says nothing. */
bool rx_robbed(struct fb_conn *, int fd, uint64_t more);
/* gS, and the kernel says that enough is there: without the frames? */
bool rx_enough(struct fb_conn *, int fd);
/* The half becomes plain, and the kernel has SO_PEEK_OFF. */
void rx_peeks_end(struct fb_conn *);
/* A look with MSG_PEEK, from there on; FB_RETRY: the kernel has it. The lock is free. */
ssize_t rx_peek_from(struct fb_conn *, int fd, const struct iovec *v, int cnt, int flags);
/* gS: what follows S is the application's. */
void rx_no_switch(struct fb_conn *);
/* have[1] and have[2] are the `total` bytes that can be read from the ring now, the first of which
 * has the number `at`. Those that MSG_PEEK has shown already go to have[0], out of their copy, and
 * the other two lose them. `show`: as many are about to be shown. */
void rx_shown(struct fb_conn *, uint64_t at, struct iovec have[3], size_t total, size_t show,
              size_t ring_size);
void rx_shown_free(struct fb_conn *);
/* A receive of the library's own, or with MSG_PEEK a look. Takes bytes, never an error: that is for
 * the call of the application's that comes first. Count, 0 at FIN, -EAGAIN, or -EPIPE: the end, and
 * the kernel has an error or has told it. */
ssize_t rx_look(struct fb_conn *, int fd, const struct iovec *v, int cnt, uint64_t limit,
                int flags);
/* The stream ends here, with an error or 0. */
void rx_ended(struct fb_conn *, int end);
/* It ends as rx_look has said. whole: nothing that the sender has sent is missing. */
void rx_at_end(struct fb_conn *, ssize_t n, bool whole);
void rx_over(struct fb_conn *, ssize_t n);
/* Takes it: an error is told once, by whichever call comes first, as the kernel does; then it is
 * the end of the stream. 0 or -errno. */
int rx_take_end(struct fb_conn *, int fd);
void rx_skip(struct fb_conn *, int fd);
/* n bytes of the rail's are the application's. */
static inline void rx_counted(struct fb_conn *c, size_t n)
{
    struct fb_pub *pub = c->s.pub;
    struct fb_pub_rail *show = c->x->show;

    c->x->rx.calls++;
    atomic_store_explicit(&pub->rx, pub->rx + n, memory_order_relaxed);
    atomic_store_explicit(&show->rail_rx, show->rail_rx + n, memory_order_relaxed);
}
/* n bytes have been copied out of the ring: they are the application's. */
static inline void rx_took(struct fb_conn *c, struct rsk_rail *rail, size_t n)
{
    rail->wire->rx_consume(rail, n);
    rx_counted(c, n);
}
/* The ring is empty as far as is known: has something come that only a drain tells of? For who asks
 * again and again, and would be told by the progress thread, woken for each message, else. */
static inline bool rx_fetch(const struct fb_conn *c, struct rsk_rail *rail)
{
    return rail && rail->wire->news_by_drain && !c->x->rx.frozen && c->x->rx.end == 0 &&
           rail->wire->poll(rail, RSK_RX) & RSK_RX;
}
/* Is the anchor to be looked at? For the first time in a call (`asked`) also without news: a half
 * whose rail has been given back hears by TCP alone, and the progress thread, which watches the
 * anchor, may be busy with the ends of many rails. */
static inline bool rx_unheard(const struct fb_conn *c, const struct rsk_rail *rail, bool asked)
{
    return atomic_load(&c->x->anchor_news) || (!rail && !asked);
}
/* n bytes of app data from the kernel went by. */
void rx_count(struct fb_conn *, const struct iovec *v, int cnt, size_t n);
/* What of the sender's frame and of what it sends again is still to come by TCP? Read by whomever:
 * by the kernel's count. */
bool rx_owed_by_tcp(struct fb_conn *);
/* sk: rx == E and nothing to skip: the half is plain, once nothing is left in front of it. */
void rx_caught_up(struct fb_conn *);
/* Read from the kernel, and from the ring, and count: rx.c. As rx_try. */
ssize_t rx_kernel_read(struct fb_conn *, int fd, const struct iovec *v, int cnt, uint64_t limit,
                       int flags);
ssize_t rx_ring_read(struct fb_conn *, struct rsk_rail *, const struct iovec *v, int cnt,
                     uint64_t limit, int flags);

/* ---- what is read before anything else, by this process or another: rx_front.c ---- */

/* Bytes of it that nobody has read yet. */
uint64_t rx_front_left(const struct fb_conn *);
/* There is one: reads of it, or looks (MSG_PEEK). 0: another process has just read the last. */
size_t rx_front_read(struct fb_conn *, const struct iovec *v, int cnt, int flags);
/* False: some are left. Else it is given back. */
bool rx_front_over(struct fb_conn *);
/* gS, and no switch is at S: if some are left the half is not plain, and this has
 * changed its state. */
bool rx_front_no_switch(struct fb_conn *);
/* The stream ends, and nobody has a reference. */
void rx_front_free(struct fb_conn *);

/* The owner, for a child that asks; progress thread, the lock is free. */
/* How many unread bytes can only be taken out. 0: none, or not now. */
size_t rx_front_due(struct fb_conn *);
/* The shared memory for n bytes. */
size_t rx_front_size(size_t n);
/* Takes those that are there; without a front into `memory` (NULL: not then), of which fd is a
 * descriptor. True: memory and fd are the stream's from now on. */
bool rx_front_take(struct fb_conn *, void *memory, size_t size, int fd);
/* Nothing else is between the stream and the kernel. */
bool rx_front_alone(struct fb_conn *);
/* Has it all been read, by whomever? Then the half goes on. Any thread. */
bool rx_front_look(struct fb_conn *);
/* Waits for that, until then at most. The application's threads; blocks. */
bool rx_front_wait(struct fb_conn *, uint64_t until);
/* It is over: closes its descriptor. May wait for a moment. */
void rx_front_close(struct fb_conn *);

/* A forked child's new stream begins with what its owner has taken out; ours: it unmaps the
 * memory in the end. */
void rx_front_inherit(struct fb_conn *, void *memory, size_t size, bool ours);
/* The same with what its parent had inherited itself, which the fork has mapped here. False:
 * nothing is left of it. */
bool rx_front_known(struct fb_conn *, const struct fb_conn *parents);

/* ANN has come: raises the gate. 0: the guard holds, and it stays up; or a reason number, and it
 * is as before. */
int rx_guard(struct fb_conn *);

#endif
