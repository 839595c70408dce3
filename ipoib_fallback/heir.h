/*
 * heir.h - streams that a fork has given a second process. Rails belong to the process that
 * made them, and stay where they are at a fork: most children never touch what they inherit.
 * A child that does asks the owner first; heir.c says how.
 */
#ifndef FB_HEIR_H
#define FB_HEIR_H

#include "ipoib_fallback/fb_process.h"
#include "ipoib_fallback/stream.h"

extern _Atomic uint32_t heir_forks; /* of this process, while it had streams */
/* heir_forks as it was when no fork was under way the last time. A stream has this as `born`: it
 * counts as made before a fork that is under way, whose child may have it. */
extern _Atomic uint32_t heir_over;
/* Forks that are under way and make no link, as there was no stream yet, or no room: what is made
 * now stays on TCP. */
extern _Atomic unsigned heir_blind;

/* Another process may hold the description, or has held it. */
static inline bool conn_shared(struct fb_conn *c)
{
    return conn_flag(c, CF_SHARED) || atomic_load(&heir_forks) != c->born;
}

/* Another process has it, or will have, for as long as can be known. Noted in `lent`, where
 * children of this process see it also after this process has ended. True: CF_SHARED was
 * not set before. */
static inline bool conn_give_away(struct fb_conn *c)
{
    if (atomic_fetch_or(&c->s.pub->lent, FB_LENT_AWAY) & FB_LENT_AWAY)
        atomic_fetch_or(&c->s.pub->lent, FB_LENT_OFTEN);
    return conn_set(c, CF_SHARED);
}

/* May another process still hold it? Also one that was this process's child and goes on as another
 * program, if it has said so before (FB_LENT_AWAY; CF_SHARED, if anybody was there to hear it). No
 * lock of the stream's may be held. */
bool heir_held(struct fb_conn *);
/* A child has nothing in front any more, nor has anybody else: the kernel alone has its stream. */
void heir_front_over(struct fb_conn *);
/* Is there a child, or who descends from one, that may still ask for it? No lock of the
 * stream's may be held. */
bool heir_linked(struct fb_conn *);
/* The owner marks its stream as one that must be asked for. False: a child uses it already. */
bool heir_take(struct fb_conn *);
/* Both halves are the kernel's again. */
void heir_settled(struct fb_conn *);
/* A child uses the stream, or its owner may still do so: it stays on TCP. Progress thread. */
bool heir_elsewhere(struct fb_conn *);
/* May a child have it that was forked since? No lock of the stream's may be held. */
bool heir_may_have(struct fb_conn *);
/* This process is done with the stream: children that inherited it may board it. */
void heir_let_go(struct fb_conn *);
/* Somebody else will hold an inherited stream, for ever as far as can be known: its
 * owner is told. */
void heir_disown(struct fb_conn *);
/* Serves the children's questions from now on. Progress thread. */
void heir_serve(void);
/* In a child: the links are the parent's, and nobody holds the locks. */
void heir_forget(void);
void heir_child_forget(void);

/* ---- given.c */

/* The kernel has closed the last number of it. */
void given_closed(struct fb_conn *);
void given_forget(void); /* forked child */
/* It was received from a process that may have it still. Progress thread. */
bool given_elsewhere(struct fb_conn *);
/* Nobody asks that any more. */
void given_over(struct fb_conn *);

/* ---- between heir.c and heir_child.c ---- */

#define HEIR_ASK_NS 5000000000ull /* the owner's library answers, and its peer's has to */

/* What its owner had counted when it let a stream go: the application's bytes, and what the kernel
 * was given and gave. */
struct heir_counts {
    uint64_t tx, rx, kernel_tx, kernel_rx;
};

/* What goes over a link: questions from the child, with a socket for the answer, and LET_GO
 * from the owner. */
enum { HEIR_ASK_STREAM = 1, HEIR_ASK_STREAM_FOR_EVER, HEIR_ASK_EPOLL, HEIR_LET_GO };
struct heir_note {
    uint32_t what, slot, gen, alone;
    uint64_t id;
    struct heir_counts counts; /* of LET_GO */
};

/* Pieces of memory that are not malloc's, whose locks a fork, or the program that a handler came
 * over, may hold. Each list has pieces of one size, whose first word is the list's. NULL: no
 * memory. Under the caller's lock. */
void *heir_piece(void **list, size_t size);
void heir_piece_back(void **list, void *piece);

/* The owner's end of a link. */
struct heir_link {
    struct heir_link *next;
    int fd;
    /* heir_forks right after this fork: the child holds streams that were born before */
    uint32_t seq;
    struct rsk_watch *watch;
};

/* A question has come over the link that was made with this fork; reply is the socket for the
 * answer, given back then. Progress thread. */
void heir_asked(const struct heir_note *, int reply, uint32_t seq);
void heir_asks_forget(void); /* forked child */
/* Is that instance the kernel's alone? Else it will be in a moment, as far as it can.
 * Progress thread. */
bool heir_epoll_asked(uint64_t id);

/* In the child, whose memory is the parent's: the links to children before it. */
struct heir_link *heir_siblings(struct heir_link *own, uint32_t *seq);
/* This process has forked a child without a link (fb_fork_begin), which may have what is inherited
 * here and not used yet. */
bool heir_has_forked(void);
/* Does nobody but this process have the stream any more? Progress thread. */
bool heir_alone(struct fb_heritage *, const struct fb_conn *);

#endif
