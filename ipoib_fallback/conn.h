/*
 * conn.h - what a stream is made of: struct fb_conn, which a struct fb_stream really is, with its
 * two halves and its flags. For the files of this folder and its tests, by stream.h. See lock.h for
 * who protects what.
 */
#ifndef FB_CONN_H
#define FB_CONN_H

#include "config/reason.h"
#include "config/values.h"
#include "ipoib_fallback/fb.h"
#include "ipoib_fallback/io.h"
#include "ipoib_fallback/lock.h"
#include "ipoib_fallback/past.h"
#include "ipoib_fallback/proof.h"
#include "ipoib_fallback/proto.h"
#include "ipoib_fallback/spin.h"
#include "ipoib_fallback/switch_fsm.h"
#include "rsock/loop.h"

#include <errno.h>

#define FB_MUST_SEE 8
enum { FB_EOF = 1, FB_KERNELS, FB_MISSING }; /* fb_rx.end */

enum { FB_CORK = 1, FB_CORK_ON = 2 }; /* fb_tx.cork */

/* The sending half. */
struct fb_tx {
    _Alignas(16) struct fb_lock lock;   /* the slot's for ever: quick.c */
    _Alignas(16) _Atomic uint8_t state; /* enum fb_tx_state; changed by tx_to() only */
    uint8_t c;                          /* announced first byte of SWITCH */
    uint8_t frame_at;                   /* bytes of frame that TCP has taken */
    uint8_t frame_flags;                /* for RESUME */
    uint32_t calls;                     /* that put bytes on a rail */
    _Atomic bool want;                  /* the peer is proved: the next send may try to board */
    bool echoed;                        /* ECHO has come: the rail is open */
    _Atomic bool owed; /* L1 with F == E: written only with bytes, FIN, or on request */
    bool later;        /* leave as soon as the frame is whole */
    /* the peer has handed the stream over: whoever reads it there next may not notice a gap */
    bool handed;
    _Atomic bool turned; /* the other half has boarded since the last send */
    _Atomic bool fin;    /* shutdown(SHUT_WR) was called: ends with the kernel's shutdown */
    bool fin_done;
    bool on_rail; /* this rail's sender half was started: it will not be again */
    uint8_t cork; /* FB_CORK: noted, and not yet set; with FB_CORK_ON */
    uint16_t why; /* reason of the leave */
    int err;      /* what the anchor said to a frame; the next send returns it */
    uint32_t att, tries;
    uint64_t S, F, E, cur;
    struct fb_past past;
    /* Monotonic ns: up to then the receiver may still be reading what lay before S in TCP. */
    uint64_t behind_until;
    uint64_t paused_at; /* monotonic ns: since then a switch keeps bytes waiting; 0: none does */
    _Atomic uint64_t not_before; /* monotonic ns: no attempt earlier */
    uint8_t X[16];
    struct fb_frame frame;
};

struct fb_front;

/* The receiving half. */
struct fb_rx {
    _Alignas(16) struct fb_lock lock;   /* the slot's for ever: quick.c */
    _Alignas(16) _Atomic uint8_t state; /* enum fb_rx_state; changed by rx_to() only */
    uint8_t c;
    uint8_t frame_at;
    uint32_t calls; /* that took bytes from a ring */
    bool frozen;    /* a hand-over: V is R, and the ring is not read, until the sender has gone */
    bool more;      /* frozen: the ring had bytes beyond it, which come again by TCP */
    bool handed;    /* sk after a hand-over: plain as soon as the overlap is gone */
    /* shutdown(SHUT_RD) was called, and the kernel has not heard of it: rx_shut */
    _Atomic bool late;
    bool on_rail; /* this rail's receiver half was started */
    /* The SWITCH frame was seen, though perhaps not taken yet: the ring begins at S, and the ECHO
     * was sent, or is still to be sent (unechoed). */
    bool begun;
    bool peer_closed; /* the peer's CLOSED was seen */
    bool by_call;     /* a call of the application's takes bytes and frames: fb_rx_enter_for_good */
    bool asked;       /* begun, and the sender was asked to leave: the stream is pinned */
    /* A LEAVE_REQ that the rail had no room for (owed.c): its reason plus one; 0: none. */
    _Atomic uint16_t unasked;
    _Atomic bool unechoed; /* begun, but the sender has no ECHO yet, for want of room */
    bool outlives;         /* on_rail: what was sent outlives its sender */
    /* 0: not ended. Else what a receive says after V. FB_EOF: the error in `swallowed`, or end of
     * stream; FB_KERNELS: what the kernel says; FB_MISSING: the same, but ECONNRESET instead of a
     * clean end, unless a reset was told already (rx_take_end) */
    _Atomic int end;
    uint32_t att;
    uint64_t S, V, F, E, skip;
    uint8_t X[16]; /* for the ECHO */
    struct fb_frame frame;
    uint8_t *shown; /* rx_shown.c's: bytes [shown_from, shown_to) */
    size_t shown_size;
    uint64_t shown_from, shown_to;
    uint64_t peek_at;
    struct {
        struct fb_sleeper *sleeper;
        uint32_t seq;
    } must_see[FB_MUST_SEE];
    uint8_t must_see_n;
    bool peeks;      /* SO_PEEK_OFF is ours, and the next look is at byte peek_at */
    bool unshown;    /* gS: somebody looked beyond S, and was not shown it because of must_see */
    bool front_ours; /* the mapping is to be unmapped */
    _Atomic bool front_vain; /* it was waited for, and nobody has read it all */
    uint32_t no_data;        /* as fb_more's */
    /* rx_front.c's: what is read before anything else, the memory's size; and in its owner its
     * descriptor plus one */
    struct fb_front *front;
    size_t front_size;
    int front_fd;
};

/* Messages that were taken off the rail and wait for the half that they are for. Under ctl. */
struct fb_mail {
    bool ann, ack, nak, echo, leave_req, handed, hello_due;
    uint16_t nak_reason;
    uint32_t ann_att, ack_att, nak_att;
    uint64_t ack_R; /* rx of who sent the ACK; UINT64_MAX: it does not say */
    uint64_t ann_S, leave_R;
    uint8_t ann_c, echo_X[16];
    struct rsk_msg hello; /* HELLO, HELLO_ACK, PROVED, REFUSED, BYE: the progress thread's */
};

/* tx_todo, rx_todo: something waits to be done under that lock. */
enum {
    TODO_MAIL = 1,
    TODO_FAIL = 2,   /* the rail has failed */
    TODO_PEER = 4,   /* tx: the peer's RESUME came */
    TODO_LEAVE = 8,  /* leave for leave_why */
    TODO_PUSH = 16,  /* room may have come */
    TODO_ANCHOR = 32 /* rx: the anchor has something */
};

/* How far the rendezvous is; progress thread only. */
enum fb_rdv { RDV_NONE, RDV_ASKED, RDV_HELLO, RDV_PROVED };

struct tap;

/* What may be posted for a stream, each once at a time. */
enum fb_job {
    JOB_BEGIN,
    JOB_HELLO,
    JOB_SERVE,
    JOB_WATCH,
    JOB_RELEASE,
    JOB_LINGER,
    JOB_OWES,
    JOB_STALL,
    JOB_GROW,
    JOB_TAP,
    JOBS
};

/*
 * A stream is in three places, because most connections never board and there may be very many.
 * What every tracked connection needs is struct fb_conn, two cache lines, of which plain calls use
 * the first. The digests (fb_seen) are touched when a rail may soon be wanted, the rest (fb_more)
 * once one is, or another rare thing happens. All three lie in arrays of memory that is never
 * unmapped, and until it is touched has no page behind it (stream.c); so nothing is allocated where
 * a handler or a lock would be in the way. All zero is what a stream begins with, and zero is what
 * stream.c leaves behind.
 */
struct fb_seen {
    _Alignas(16) struct fb_digest tx;
    struct fb_digest rx;
};

struct fb_more {
    _Alignas(16) _Atomic uint64_t old_bytes; /* which the boarding policy does not count */
    _Atomic uint32_t old_calls;
    /* Bytes that the kernel was given and gave which are none of the application's, or not for the
     * first time: frames, residue, overlap. */
    _Atomic uint64_t own_tx, own_rx;
    struct fb_pub_rail *_Atomic show; /* what is shown of rails, from when the first was wanted */
    struct rsk_rail *_Atomic rail;    /* set and cleared with tx, rx, ctl and watchers held */
    struct fb_lock ctl_lock;
    struct fb_mail mail;
    _Atomic uint32_t tx_todo, rx_todo;
    _Atomic uint32_t anchor_bits; /* POLL* bits that the progress thread saw on the anchor */
    _Atomic uint32_t anchor_news; /* frames or an end may be there; cleared before looking */
    _Atomic bool lost; /* the kernel may have given a receive bytes that nobody has counted */
    _Atomic uint32_t peekers; /* threads asleep in the kernel's recv(MSG_PEEK) while guarded */
    _Atomic uint32_t rx_futex, tx_futex; /* for waits that no rail serves */
    _Atomic uint32_t changes;            /* counts conn_wake calls */
    _Atomic uint32_t no_data, no_room;   /* count what may have ended POLLIN, POLLOUT: fb_tally */
    _Atomic uint32_t rx_waiters, tx_waiters; /* threads asleep on a futex word of this stream */
    _Atomic uint32_t leave_why;
    _Atomic uint64_t peer_rx; /* the peer's last RESUME: what it has delivered of ours */
    /* An error that the library took from the kernel, until it is told: conn_told. */
    _Atomic int swallowed;
    _Atomic bool killed; /* conn_killed */
    _Atomic bool told;   /* fb_told */
    struct fb_spin spin_rx, spin_tx;
    _Atomic uint32_t epoch; /* written by the progress thread, before the peer is proved */
    uint8_t nonce0[16], nonce1[16];
    struct fb_tx tx;
    struct fb_rx rx;

    struct rsk_watch *watch; /* progress thread, rx lock held */
    uint32_t watch_events;   /* those of anchor_needed() */
    bool by_clock;           /* there is none, and a timer runs in its place */
    int watch_fd;            /* with a watch, rx lock held; -1: the kernel has forgotten it */

    /* Progress thread only. */
    struct rsk_timer *timer;
    enum fb_rdv rdv;
    bool far;   /* its peer is on another host, or wants RDMA */
    bool roams; /* an instance has given it away while a rail for its shard was made */
    uint64_t hello_up, hello_down; /* checkpoints of the proof */
    uint32_t rdv_tries;
    uint64_t hello_at;          /* when the last message of the proof was sent */
    _Atomic uint32_t answer_ns; /* how long the peer's library takes to answer over the rail */
    uint64_t rdv_calls;         /* s.calls at the last attempt */
    /* why this end ends the rail, for rdv_again; 0: it does not. Also under the tx lock */
    int end_reason;
    uint64_t linger_until;
    uint64_t linger_cur, linger_stuck; /* tx.cur, and until when it may stay so */
    uint64_t linger_pause;
    uint64_t stalled_at;            /* stall.c's */
    bool out_of_reach;              /* of who ends the process: exit.c */
    uint64_t full_at;               /* grow.c's, tx lock: tx when the ring was last found full, */
    uint32_t fulls;                 /* and how often since it boarded */
    _Atomic uint32_t grown;         /* times that it has left for a larger one */
    _Atomic bool bulk, larger;      /* its next ring is a large one; for that it leaves */
    bool small;                     /* there was no memory or no room for that */
    uint64_t moved, idle_at, up_at; /* budget.c's; and when the rail came */
    uint32_t budgeted;              /* bytes that are counted for its rail */
    uint64_t heat, heat_bytes; /* heat.c's: bytes a second, and in all at look number heat_beat */
    uint32_t heat_beat, refused_beat;
    uint32_t gave_up;   /* the look that made it give its rail back; 0: it has not */
    bool refused_there; /* who waits: for room at the other end */
    uint32_t holds;     /* frail.c's: failures so far, the next boarding is held down for longer; */
    bool broke;         /* and nobody knows yet whether the stream itself goes on */

    /* socket settings that matter on a rail; written by the wrappers */
    _Atomic uint64_t rcv_timeout, snd_timeout; /* ns, 0 = none */
    _Atomic bool rcv_past, snd_past; /* set to less than none, which getsockopt shows as none */
    bool closed_shared;              /* closed, and another process may go on with it */
    bool over_in_vain;               /* fb_closed_over has waited for it */
    bool goes_on;                    /* this process ends, and another one may have it */
    _Atomic uint32_t forks_then;     /* when it had been closed: heir_forks; 0: not known */
    _Atomic bool disconnected;       /* fb_disconnect */
    _Atomic bool tells_inq;          /* TCP_INQ */
    _Atomic bool stamps;             /* SO_TIMESTAMP, SO_TIMESTAMPNS */
    _Atomic int alt_fd[3];   /* other descriptors of the same description, each and one; 0 = none */
    struct tap *_Atomic tap; /* tap_link.c's */
    struct rsk_job job[JOBS];
    /* given.c's: */
    uint64_t cookie; /* its socket's, if it is passed on */
    /* who has passed it on, and says whether he has closed it; NULL: he has, or nobody did */
    struct fb_giver *_Atomic giver;
    /* heir.c's: */
    struct fb_heritage *heritage; /* inherited: from whom */
    uint32_t old_slot, old_gen, old_born;
    struct rsk_tuple tuple; /* connecting side's view; from when the rail was wanted */
};

struct fb_conn {
    struct fb_stream s; /* first: fb_stream * and fb_conn * are the same pointer */

    struct fb_more *x;                    /* the slot's for ever */
    struct rsk_shard *_Atomic prefer;     /* referenced */
    const struct cfg_stream *_Atomic set; /* its settings: rule.c; never NULL */
    struct fb_watcher *watchers;
    struct fb_lock watch_lock;
    _Atomic int fd; /* one of the application's numbers for the anchor, or the linger descriptor */
    uint32_t born, gen; /* heir_over and pub->gen when it was tracked */
    union {
        uint32_t next_free; /* while nobody has a reference */
        struct {
            _Atomic bool shut;   /* shutdown(SHUT_RD) was called */
            _Atomic bool target; /* pub has the address that it was made to: conn_target */
            uint16_t began_high; /* of began_at */
        };
    };
    _Atomic uint32_t id; /* of its two addresses: find.c's, as is the last */
    _Atomic uint32_t fresh;
    uint32_t began_at; /* fb_sleeps_now() when its number was given; 0: not known */
};
_Static_assert(sizeof(struct fb_conn) <= 128, "every tracked connection has one");

static inline void conn_began_at(struct fb_conn *c, uint64_t at)
{
    c->began_at = (uint32_t)at;
    c->began_high = (uint16_t)(at >> 32);
}

/* It began after a sleep did that is of this time; false where it is not known. */
static inline bool conn_began_after(const struct fb_conn *c, uint64_t at)
{
    return at < ((uint64_t)c->began_high << 32 | c->began_at);
}

/* fb_stream.flags */
enum {
    CF_ASKED = FB_ASKED,   /* the policy was satisfied once: the progress thread knows it */
    CF_PINNED = FB_PINNED, /* never board again */
    CF_SETTINGS = 4,       /* nonblock and time-outs have been read from the socket */
    CF_LINKED = FB_LINKED, /* a rail was there at some time: ends need care */
    CF_LINGER = 16,        /* closed by the application; fd is ours */
    CF_CHANGED = 32,       /* they were set since somebody began to read them */
    CF_SHARED = 64,        /* another process may hold the description */
    CF_CLOSED = 128,       /* no application descriptor is left */
    CF_ADDRESSES = 256,
    CF_SLOW = 512, /* on a wire that is slow to wake, now or last */
    CF_RCVLOWAT = 1024,
    CF_SERVE = 2048, /* these jobs are posted already */
    CF_WATCH = 4096,
    CF_RELEASE = 8192,
    CF_LINGER_JOB = 16384,
    CF_PEER_CLOSED = 32768,  /* the peer's CLOSED was seen: no frame may be written */
    CF_TOLD_CLOSED = 65536,  /* ours was written */
    CF_LENT = 262144,        /* pinned only as long as a forked child may use it */
    CF_STALL = 524288,       /* stall.c looks at it */
    CF_RESET = 1048576,      /* the process ends and has not read everything: so does TCP */
    CF_OWES = 2097152,       /* owed.c looks at it */
    CF_REACHABLE = 4194304,  /* reach.c counts it */
    CF_TAP = 8388608,        /* a tap has been asked for, and has neither been refused nor ended */
    CF_BY_CALL = FB_BY_CALL, /* rx.by_call, where plain receives look */
    CF_BEGIN_JOB = 33554432, /* as CF_SERVE */
    CF_HELLO_JOB = 67108864,
    CF_GROW = 268435456,     /* as CF_SERVE */
    CF_COUNTED = 1073741824, /* worth.c counts it */
    CF_LOOKS = FB_LOOKS,     /* not asked, and look_at says when that is looked at again: plain.c */
    CF_FIN = 134217728,      /* the application has shut it down for sending */
    CF_PROVED = 131072       /* the rail's other end is proved: it may announce */
};

static inline struct fb_conn *conn_of(struct fb_stream *s)
{
    return (struct fb_conn *)s;
}

/* The stream's settings. They change once, when its addresses are known. */
static inline const struct cfg_stream *conn_config(struct fb_conn *c)
{
    return atomic_load_explicit(&c->set, memory_order_acquire);
}

/* The library has taken err from the kernel, and not told it. The gate goes up: a send has to look
 * for it before the kernel raises SIGPIPE. */
static inline void conn_untold(struct fb_conn *c, int err)
{
    atomic_store(&c->x->swallowed, err);
    atomic_store(&c->s.tx_gate, 1);
}

/* What the library has taken from the kernel is told now; 0: nothing. A reset is told once: the end
 * that it makes of the other direction is none of its own. */
static inline int conn_tell(struct fb_conn *c)
{
    int err = atomic_exchange(&c->x->swallowed, 0);

    if (err == -ECONNRESET)
        atomic_store(&c->x->told, true);
    return err;
}

/* A receive has told a reset. The other half need not have heard of it, and its rail would
 * still take bytes. */
static inline void conn_reset_told(struct fb_conn *c)
{
    atomic_store(&c->x->told, true);
    atomic_fetch_or(&c->x->tx_todo, TODO_PEER);
}

/* The kernel says 0 once an error has been taken; if we took it, that error. */
static inline ssize_t conn_told(struct fb_conn *c, ssize_t n)
{
    int err;

    if ((n != 0 && n != -EPIPE) || !atomic_load(&c->x->swallowed))
        return n;
    err = conn_tell(c);
    return err ? err : n;
}

#define FB_PER_CHUNK 256u
/* Whole pages. */
#define FB_PART(type) ((FB_PER_CHUNK * sizeof(struct type) + 4095) / 4096 * 4096)

/* Its digests lie behind all the streams of its chunk: see stream.c. */
static inline struct fb_seen *conn_seen(struct fb_conn *c)
{
    uint32_t i = c->s.slot % FB_PER_CHUNK;

    return (struct fb_seen *)((char *)(c - i) + FB_PART(fb_conn)) + i;
}

/* One of its other numbers, or -1. */
static inline int conn_alt(struct fb_conn *c, int i)
{
    return atomic_load_explicit(&c->x->alt_fd[i], memory_order_relaxed) - 1;
}

/* It has asked for no rail, or is pinned and never had one: link_up, which looks at the same word,
 * gives it none. */
static inline bool conn_without_rail(uint32_t flags)
{
    return !(flags & CF_LINKED) && (flags & (CF_ASKED | CF_PINNED)) != CF_ASKED;
}

/* Sequentially consistent: several of them are looked at by who has just said something himself. */
static inline bool conn_flag(struct fb_conn *c, uint32_t f)
{
    return (atomic_load(&c->s.flags) & f) != 0;
}

static inline bool conn_set(struct fb_conn *c, uint32_t f)
{
    return (atomic_fetch_or(&c->s.flags, f) & f) == 0;
}

static inline uint64_t conn_rail_tx(struct fb_conn *c)
{
    struct fb_pub_rail *r = c->x->show;

    return r ? r->rail_tx : 0;
}

static inline uint64_t conn_rail_rx(struct fb_conn *c)
{
    struct fb_pub_rail *r = c->x->show;

    return r ? r->rail_rx : 0;
}

/* All bytes that the kernel was given, and gave. Plain calls may be adding to them. */
static inline uint64_t conn_ktx(struct fb_conn *c)
{
    return c->s.pub->tx - conn_rail_tx(c) + c->x->own_tx;
}

static inline uint64_t conn_krx(struct fb_conn *c)
{
    return c->s.pub->rx - conn_rail_rx(c) + c->x->own_rx;
}

#endif
