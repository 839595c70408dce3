/*
 * wire.h - a rail, and the operations that a wire (verbs, shm) fills in.
 *
 * A rail carries both directions of one TCP connection, each through a byte
 * ring, plus small control messages. It knows nothing of TCP: what travels when
 * is decided above (ipoib_fallback). There is no `if (shm)` outside the wires.
 *
 * Positions are the connection's own 64-bit byte numbers (0 = first byte after
 * establishment), so a ring index is `position & (size - 1)` on both sides.
 * After tx_start(S) the sender's next byte is number S; rx_start(S) on the other
 * side says the same. tx = next number to accept, F = freed (consumed by the
 * receiver's application), V = arrived, rx = consumed here. F <= rx <= V <= tx.
 *
 * Threads. tx_* calls of one rail are serialised by the caller (its tx lock), and
 * rx_* calls likewise (its rx lock); the two groups, and the calls named "any
 * thread", may run at the same time. No call blocks and none calls malloc,
 * except connect, listen and destroy, which run on the progress thread.
 * Errors: 0 or a count, or -errno. -EPIPE: the rail has failed (rsk_rail.failed).
 */
#ifndef RSK_WIRE_H
#define RSK_WIRE_H

#include <netinet/in.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

struct rsk_rail;
struct rsk_shard;

/* News about a rail. */
enum {
    RSK_RX = 1,   /* bytes can be read: rx_peek() > 0 */
    RSK_TX = 2,   /* bytes can be accepted: tx_space() > 0 */
    RSK_CTL = 4,  /* a control message can be read */
    RSK_FAIL = 8, /* the rail has failed; bytes that arrived before can still be read */
    RSK_ANY = RSK_RX | RSK_TX | RSK_CTL, /* for poll(), which always tells of a failure */
    /* For poll() on shm, called by a drain: RSK_TX, but only if arm() has asked for it since
     * a poll() with this bit last reported it. Once is enough, because the drain tells
     * everybody who waits. */
    RSK_TX_ASKED = 16,
    /* Beside RSK_TX, for poll() and arm(): it shall be rsk_much() that can be accepted. */
    RSK_MUCH = 32,
};

/* What became of a peer's process whose direction of the TCP connection has ended. */
enum rsk_fate {
    RSK_LIVES,       /* it has said so (tx_ends), or the rail has failed and nothing is known */
    RSK_DIED,        /* it was killed (has not said so), and had consumed everything */
    RSK_DIED_UNREAD, /* it was killed, and had not consumed everything */
};

/* How a waiter wants to hear of news: see arm(). */
enum {
    RSK_BY_FUTEX = 1, /* wake the futex word rx_word or tx_word */
    RSK_BY_SHARD = 2, /* a drain of the rail's shard calls notify(), and the shard's fd fires */
    /* the progress thread drains and notifies: the caller, who polled so far, stops */
    RSK_BY_LOOP = 4,
};

/* A control message; the rail's two ends are of one library, fields in host order are
 * little-endian on every machine that we build for. What the fields mean is the business
 * of ipoib_fallback/proto.h. Exactly 64 bytes. */
struct rsk_msg {
    uint8_t type;
    uint8_t flags;
    uint16_t reason;
    uint32_t epoch;
    uint32_t att;
    uint32_t word;
    uint64_t a;
    uint64_t b;
    uint8_t data[32];
};
_Static_assert(sizeof(struct rsk_msg) == 64, "control message size");

/* The TCP connection that a rail is for, as the connecting side sees it. v4-mapped IPv6
 * addresses are unmapped first. Ports are in host order. */
struct rsk_tuple {
    uint8_t family; /* AF_INET or AF_INET6 */
    uint8_t pad[3];
    uint16_t src_port, dst_port;
    uint8_t src[16], dst[16]; /* network order; IPv4 in the first 4 bytes, rest 0 */
};

struct rsk_rail {
    const struct rsk_wire *wire;
    void *owner;             /* the stream above; set before notify */
    struct rsk_shard *shard; /* whose drain finds this rail's data events */
    /* Called by whoever drains, with RSK_* bits that may hold now. It must not take tx or
     * rx locks (the drainer may hold one) and must not call back into the wire. */
    void (*_Atomic notify)(struct rsk_rail *, unsigned events);
    /* Words that blocked threads sleep on with FUTEX_WAIT (shared futex, not _PRIVATE).
     * shm: in the shared mapping, the peer itself wakes them; verbs: in this process. */
    _Atomic uint32_t *rx_word, *tx_word;
    _Atomic uint32_t failed;   /* 0, or a reason number (reason.def) */
    _Atomic uint32_t refs;     /* waiters that look at the rail without a lock; rsk_rail_put */
    uint32_t last_look;        /* ns: how long its destruction has waited for them, the last time */
    uint32_t tx_size, rx_size; /* ring sizes in bytes, powers of two */
    /* Set by the owner, read by tx_start: the sender keeps at most this many bytes (SO_SNDBUF,
     * invariant I3), so tx_space() and RSK_TX stay within it. 0: the ring's size. */
    uint32_t tx_limit;
    uint32_t peer_pid; /* shm: from SO_PEERCRED; verbs: 0 */
    /* The words lie in the memory of somebody who must not be able to keep us asleep: who is
     * queued on one can be moved to another by whoever maps both (FUTEX_REQUEUE). So nobody sleeps
     * on them alone. */
    bool guarded;
    char where[24]; /* for people: "shm", "rxe0/1" */
};

/* What the layer above gives to a wire that accepts: called on the progress thread. */
struct rsk_accept_ops {
    /* Is this connection ours, and may it have a rail now? 0: yes, with the shard to use, the
     * size wanted for our receive ring, and the owner (a reference is taken; accepted() or
     * refused() follows in any case). Otherwise a reason number (RSN_NOT_MINE, RSN_NOT_YET...). */
    int (*find)(const struct rsk_tuple *t, struct rsk_shard **shard, size_t *ring, void **owner);
    void (*accepted)(void *owner, struct rsk_rail *rail);
    void (*refused)(void *owner, int reason);
    /* No connection of this process can have a rail of this wire, and somebody has asked for one
     * for this. May be NULL. */
    void (*none)(const struct rsk_tuple *t, int reason);
};

/* How a rail's packets go. Filled with the connection's own addresses before it is asked for. */
struct rsk_route {
    uint8_t src[16], dst[16]; /* as in the tuple */
    int tos;                  /* their service type; -1: the kernel's own choice */
};

struct rsk_wire {
    const char *name; /* "shm", "verbs" */
    uint8_t path;     /* what stat shows: 1 shm, 2 verbs */
    /* What tx_put accepted is in the receiver's memory even if the sender's process dies: a killed
     * peer ends the stream cleanly, as with TCP. False: it ends with ECONNRESET (I6). */
    bool outlives_sender;
    /* The sender writes into the memory that the receiver reads, and both have only the processors'
     * caches between them. */
    bool read_in_place;
    /* A sleeper is woken by way of an adapter's events, which takes far longer than a futex:
     * spinning for longer pays. */
    bool slow_to_wake;
    /* That something has arrived is known once somebody has drained the shard, which poll()
     * does. */
    bool news_by_drain;
    /* That part of what may be unread is much: rsk_much(). */
    uint8_t much;
    /* Its objects do not work under other credentials than those that opened them. */
    bool bound_to_credentials;

    /* ---- set-up: progress thread only; never blocks longer than a local system call ---- */

    /* Is this wire usable in this process at all? 0 or a reason number. Opens nothing big. */
    int (*usable)(void);
    /* Makes port (host order) reachable for rail requests. peer: the other port of a connection
     * that there is to it, which where each has a process of its own says which one; 0: none is
     * known. Idempotent. 0 or -errno. */
    int (*listen)(int family, uint16_t port, uint16_t peer, const struct rsk_accept_ops *ops);
    /* The opposite. What is being answered goes on. */
    void (*unlisten)(int family, uint16_t port);
    /* Asks for a rail for t. done() is called exactly once, later, on the progress thread:
     * rail with reason 0, or NULL with a reason number. Returns 0, or -errno when it could not
     * even begin (done is then not called). The deadline is this call's own: 3 s. */
    int (*connect)(const struct rsk_tuple *t, struct rsk_shard *shard, size_t ring, void *owner,
                   void (*done)(void *owner, struct rsk_rail *rail, int reason));
    /* Closes what listen() and connect() have opened: they open it anew, under the credentials and
     * in the namespaces of then. What is under way may end with this reason; rails are dead. */
    void (*shut)(int reason);
    /* How many rails have been killed whose last messages are still to be sent; none of them for
     * longer than 0.1 s. NULL: none. */
    unsigned (*parting)(void);
    /* fn says how the rail of a connection goes, if not as the connection itself: owner is whose
     * rail is asked for, NULL if it is the peer that asks. NULL: the wire has no packets. */
    void (*on_route)(void (*fn)(const struct rsk_tuple *, void *owner, struct rsk_route *));
    /* fn: may the owner of a rail that is being set up have rings of so many bytes, both together?
     * The peer has a say in that; stranger: and could do us no other harm. Else there is no rail
     * (RSN_BUDGET). Progress thread; may be NULL. */
    void (*on_room)(bool (*fn)(void *owner, size_t bytes, bool stranger));
    /* Ends the rail and frees it. No thread is inside another call on it, or will be: the
     * caller has refs == 0 and has taken both locks since nobody can find the rail any more. */
    void (*destroy)(struct rsk_rail *);

    /* ---- sender half ---- */

    void (*tx_start)(struct rsk_rail *, uint64_t S);
    /* Where the next bytes go: up to two pieces, at most the credit. Returns their sum. */
    size_t (*tx_space)(struct rsk_rail *, struct iovec v[2]);
    /* The first n bytes of that space are filled: they are accepted, also if the rail has failed
     * and the result is -EPIPE (tx_kept has them then), and posted as far as the rail is open and
     * message credit allows. */
    int (*tx_put)(struct rsk_rail *, size_t n);
    /* The three steps in one, for what most sends are: n bytes from p, all or nothing. n; 0:
     * there is not room for all, or the rail has failed. If it fails only now they are accepted,
     * as by tx_put. */
    size_t (*tx_give)(struct rsk_rail *, const void *p, size_t n);
    /* Post what is staged and everything from now on. Until this call no byte leaves this process's
     * private memory. It comes when the receiver has proved itself (ECHO), and on a wire that
     * outlives_sender right after tx_start: there the kernel has shown whose memory it is. */
    int (*tx_open)(struct rsk_rail *);
    /* Posts what could not be posted before. Returns the bytes still unposted, or -errno. */
    ssize_t (*tx_push)(struct rsk_rail *);
    /* F: the highest consumption that the receiver has published, brought up to date and bounded
     * by what was posted; a value outside [old F, posted] fails the rail. */
    uint64_t (*tx_freed)(struct rsk_rail *);
    /* What is known to be in the receiver's memory, read or not: up to here. Where that has to be
     * asked, it is asked, and a later call knows it. NULL: all that was accepted. */
    uint64_t (*tx_arrived)(struct rsk_rail *);
    /* The bytes [from, to) that were accepted and not yet freed, for the replay. */
    size_t (*tx_kept)(struct rsk_rail *, uint64_t from, uint64_t to, struct iovec v[2]);
    /* No byte is posted from now on. Returns once no work request can still read or write
     * memory on behalf of posts that were not made (verbs) - it does not wait for completions. */
    void (*tx_stop)(struct rsk_rail *);

    /* ---- receiver half ---- */

    void (*rx_start)(struct rsk_rail *, uint64_t S);
    /* The bytes that have arrived and are not consumed: up to two pieces. Returns their sum. */
    size_t (*rx_peek)(struct rsk_rail *, struct iovec v[2]);
    /* The first n of them are consumed; publishes credit by the wire's own rule. */
    void (*rx_consume)(struct rsk_rail *, size_t n);
    /* The same in one: what has come, at most n bytes, to p. How many. 0 also if the
     * rail has failed. */
    size_t (*rx_take)(struct rsk_rail *, void *p, size_t n);
    /* Fixes V: later arrivals are ignored. Idempotent. Returns V. Works on a failed rail. */
    uint64_t (*rx_freeze)(struct rsk_rail *);

    /* ---- control messages: any thread ---- */

    /* 0; -EAGAIN: the peer has not taken the earlier ones (64 slots); -EPIPE: failed. Wakes the
     * peer's progress thread. */
    int (*ctl_send)(struct rsk_rail *, const struct rsk_msg *);
    /* 1 with the oldest message, 0 if there is none. Callers serialise among themselves. */
    int (*ctl_recv)(struct rsk_rail *, struct rsk_msg *);

    /* ---- ends, any thread; only of a wire that outlives_sender ---- */

    /* This process lives: what it has not read is no sign that it was killed. Said before it
     * ends its direction of the TCP connection, and by kill(). Whoever sees that end finds
     * the word said. */
    void (*tx_ends)(struct rsk_rail *);
    /* The peer's direction of the TCP connection has ended: what does that mean?
     * Changes nothing. */
    enum rsk_fate (*tx_fate)(struct rsk_rail *);

    /* ---- waiting: any thread that holds a reference ---- */

    /* Looks, without a system call: which of these RSK_* hold now; RSK_FAIL in any case. What is
     * not asked for may cost the peer a cache line. */
    unsigned (*poll)(struct rsk_rail *, unsigned events);
    /* Asks that the next change of `events` (RSK_RX, RSK_TX; RSK_CTL by the loop) be told in the
     * ways of `how` (RSK_BY_*), once. Full fence inside, and looks again: returns those of events
     * that hold already, in which case the caller must not sleep. */
    unsigned (*arm)(struct rsk_rail *, unsigned events, unsigned how);
    /* Fails the rail from this side: used before destroy. What has been posted is still sent,
     * also after the destruction, unless it has failed already, or the reason is that it has.
     * Progress thread. */
    void (*kill)(struct rsk_rail *, int reason);
};

extern const struct rsk_wire rsk_shm_wire;
extern const struct rsk_wire rsk_verbs_wire;

/* So much room poll wants before it says that bytes can be sent, as TCP, whose next blocking write
 * then seldom waits. most: how much may be unread. */
static inline size_t rsk_much(const struct rsk_rail *r, size_t most)
{
    size_t n = most / r->wire->much;

    return n ? n : 1;
}

static inline void rsk_rail_get(struct rsk_rail *r)
{
    atomic_fetch_add_explicit(&r->refs, 1, memory_order_acquire);
}

static inline void rsk_rail_put(struct rsk_rail *r)
{
    atomic_fetch_sub_explicit(&r->refs, 1, memory_order_release);
}

#endif
