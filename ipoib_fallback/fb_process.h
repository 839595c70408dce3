/*
 * fb_process.h - fb.h's streams all at once, for the layer that intercepts calls: what the process
 * is about to do that rails would be in the way of, and forks. As in fb.h, results are counts or
 * -errno, and errno is never touched.
 */
#ifndef FB_FB_PROCESS_H
#define FB_FB_PROCESS_H

#include "ipoib_fallback/fb.h"

#include <stdbool.h>
#include <stdint.h>

/* ---- calls that rails, or our thread, would be in the way of: hold.c ---- */

enum fb_hold_what {
    /* rails and sockets that are bound to the credentials of who opened them end */
    FB_HOLD_CREDENTIALS,
    FB_HOLD_THREAD /* all rails end */
};

/* Before the call: no rail begins until fb_release with the same argument, and what is named above
 * is over when this returns, and so is the progress thread. Several threads may hold. Blocks for as
 * long as leaving takes, as fb_leave_all. */
void fb_hold(int reason, enum fb_hold_what);
void fb_release(enum fb_hold_what);
/* For how many ns at most a thread may sleep that waits for something on a rail: a short time where
 * the progress thread could not go on after a hold, else UINT64_MAX. Before such a thread looks
 * again it calls fb_alone, which now and then does the progress thread's work, and tries to start
 * it. No lock held. */
uint64_t fb_sleep_most(void);
void fb_alone(void);
/* From now on no stream boards, for `reason`, and what is plain stays so. Inside a hold
 * that is never released, or when the application has made an io_uring that could not be
 * found (pl_ring.c). */
void fb_plain_for_good(int reason);
/* After fb_plain_for_good. True: both halves are the kernel's alone, and the stream may be
 * forgotten. False: the sending half is not plain, or keeps an error, and the close will reset the
 * connection; or the receiving half is not plain, and its calls go by fb_rx_enter_for_good. */
bool fb_retire(struct fb_stream *, int fd);

/* fn is asked on the progress thread, with the stream's numbers (-1: none), before a stream gets a
 * rail: 0, or why it must not. Registered at load time. */
void fb_on_foreign(int (*fn)(const int fds[4]));

/* ---- fork: heir.c ---- */

struct fb_heritage; /* what a child has of its parent, until fb_heritage_end */
struct fb_fork {
    int theirs; /* the child's end of the link, -1: none is needed */
    bool blind; /* there is no link, and may be streams before it has ended */
    void *link;
};

/* Around fork, in the parent; streams stay where they are. Begin is false when no link to the
 * child can be had: the caller then lets everything leave and pins it. fb_fork_parent also after
 * a failed fork. */
bool fb_fork_begin(struct fb_fork *);
void fb_fork_parent(struct fb_fork *);
/* In the child, before the library's descriptors are closed there (rsk_own_after_fork_child): but
 * for its link. */
void fb_fork_keep(struct fb_fork *);
/* In the child, instead of fb_after_fork_child. NULL: there is nothing to inherit, or no memory. */
struct fb_heritage *fb_fork_child(struct fb_fork *);
/* In a child that has just been forked: it knows no number of this any more, which its own parent
 * had inherited. The link and the file are given back. */
void fb_heritage_end(struct fb_heritage *);
/* Had its owner inherited it, before this process inherited it from him? */
bool fb_inherited(const struct fb_stream *theirs);
/* In the child: fd, one of the numbers of the parent's stream, is about to be used. The parent
 * hands the stream over if it is on a rail (blocks, at most 5 s; after that the connection is
 * reset). The child's own stream with one reference and fds == 1, or NULL: it cannot be tracked,
 * the number is plain libc's. */
struct fb_stream *fb_adopt(struct fb_heritage *, struct fb_stream *theirs, int fd);
/* In the child: inherited streams will be held by a new program, or used by calls that the library
 * does not see. fb_disown asks the parent for one of them; fb_disowned waits for the answers to
 * all, under one time limit. Both may block, as fb_adopt does. */
enum { FB_ASKS = 64 };
struct fb_asks {
    unsigned n; /* 0 at first */
    struct fb_ask {
        struct fb_heritage *heritage;
        struct fb_stream *stream;
        int reply;
    } ask[FB_ASKS];
};
void fb_disown(struct fb_asks *, struct fb_heritage *, struct fb_stream *theirs);
void fb_disowned(struct fb_asks *);
/* In the child: it is about to use an epoll instance, which the parent knows by this number. It is
 * that one's alone, and the parent never has another one with it. */
void fb_ask_epoll(struct fb_heritage *, uint64_t id);
/* In the parent: does a child use that instance? */
bool fb_epoll_elsewhere(uint64_t id);
/* In the parent: there is no such instance any more. */
void fb_epoll_gone(uint64_t id);
/* fn is called on the progress thread until it is true: the instance is the kernel's alone. */
void fb_on_epoll_asked(bool (*fn)(uint64_t id));

#endif
