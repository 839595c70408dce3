/*
 * wait.h - how a receive or send that has found nothing waits, between two looks of call.c.
 */
#ifndef FB_WAIT_H
#define FB_WAIT_H

#include "ipoib_fallback/sleep.h"

struct fb_conn;
struct rsk_rail;

enum where { ON_WORD, ON_ANCHOR };

struct wait {
    enum where where;
    _Atomic uint32_t *word;
    uint32_t val;
    /* Beside a rail's word that is guarded: one of ours, which conn_wake changes, too. */
    _Atomic uint32_t *own;
    uint32_t own_val;
    struct rsk_rail *rail; /* referenced */
    unsigned event;
    uint32_t changes; /* conn_wake has run since: look again */
    bool frames;      /* what comes on the anchor is looked at before the next byte is read */
    bool spun;
    uint64_t begin;    /* of the spin before this sleep */
    uint64_t timeout;  /* ns; 0 = none */
    uint64_t deadline; /* monotonic ns; 0 = none, or nothing has been waited for yet */
    bool timed;        /* there is one, and we keep it: the kernel would count anew for each call */
    bool marks;        /* urgent data wakes, too: a MSG_WAITALL that has bytes ends there */
    struct fb_signals signals;
    bool cut;  /* EINTR if the next look finds nothing */
    bool some; /* bytes have moved, or been shown: a handler with SA_RESTART ends it, too */
    bool ends; /* wait_more: nothing comes after the next look */
    uint8_t more_ms;
};

/* A socket's time-out (ns, 0: none) is for the whole call, also if the stream changes track in it.
 * Where a filter may forbid poll the kernel keeps it. */
void wait_limit(struct wait *, uint64_t timeout);
/* rx lock, tx lock held, and given back. 0: look again; or -errno, the call's end. */
int wait_rx(struct fb_conn *, int fd, struct wait *);
int wait_tx(struct fb_conn *, struct wait *);
/* The same where something is there, but more is wanted; no lock held. Not every byte that comes
 * ends it at once: 8 ms at most. */
int wait_more(struct fb_conn *, struct wait *);
/* The same for a plain half whose socket is full; no lock held. */
int wait_writable(int fd, struct wait *);

#endif
