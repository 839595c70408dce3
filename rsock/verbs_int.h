/*
 * verbs_int.h - what the parts of the verbs wire share: the rail, the shard part, the
 * device. For verbs_*.c only.
 *
 *   verbs_dl    the libraries' functions          verbs_cm    rendezvous, connecting side
 *   verbs_channel  events of librdmacm            verbs_fork  what a forked child undoes
 *   verbs_dev   devices, their removal            verbs_post  sending and what it needs
 *   verbs_rail  memory and QP of one rail         verbs_recv  receiving
 *   verbs_cq    the shard part: CQs, draining     verbs_mind  parts that nobody drains
 *   verbs_wire  operations table and waiting      verbs_listen  the accepting side
 *   verbs_probe silent rails whose peer is gone   verbs_pin  how much is registered
 *   verbs_setup what both sides of a rendezvous do  verbs_part  parts, made and ended
 *   verbs_host  what is looked at before anything is opened  verbs_bye  the end of a rail that is
 *                                                                       well
 *
 * Locks, outermost first, none held across a call that blocks:
 *   vb_part.life                the shard's last put (part_free), against callbacks that use the
 *                               shard
 *   shard drain lock (shard.c)  rails leaving a part, completions being dispatched
 *   vb_rail.lock                posting to a QP; the credit and message counters
 *   vb_part.lock                polling a part's CQs
 * The last two are leaves: nothing is taken under them. They spin before they sleep, and must
 * not be wanted by a signal handler that interrupted their holder: handlers are deferred while
 * the library works.
 */
#ifndef RSK_VERBS_INT_H
#define RSK_VERBS_INT_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "rsock/loop.h"
#include "rsock/own.h"
#include "rsock/shard_part.h"
#include "rsock/sys.h"
#include "rsock/verbs_dev.h"
#include "rsock/verbs_dl.h"
#include "rsock/verbs_lock.h"
#include "rsock/verbs_proto.h"
#include "rsock/wire.h"

enum {
    VB_MAX_RAILS = 4096,
    VB_SQ = 128,             /* send queue entries of a rail */
    VB_SQ_RESERVE = 8,       /* of them never used for data */
    VB_RQ = VB_MESSAGES + 1, /* and one for the initiator's descriptors */
    VB_INLINE = 256,         /* asked for; a device that cannot gets less */
    VB_MAX_CQ = 16,
    VB_RING_DEFAULT = 64 * 1024,
    VB_RING_MIN_LOG2 = 12,
    VB_RING_MAX_LOG2 = 26,
    VB_SIGNAL_EVERY = 16,
    VB_TEST = 1 << VB_RING_MIN_LOG2, /* no path's packets have more (IBV_MTU_4096) */
    VB_HELLO_ROOM = 4032, /* for a later version's descriptors, with what ours do not have */
};

/* What rdma_cm_id.context points to. */
struct vb_cm_owner {
    enum { VB_OF_RAIL, VB_OF_LISTENER, VB_OF_DEV } kind;
    void *it;
};

/* One opened RDMA device. The context is librdmacm's. Progress thread only. */
struct vb_dev {
    struct ibv_context *ctx; /* NULL: librdmacm may have closed it */
    uint64_t key;            /* never reused, as a device that comes back is another one */
    struct rsk_watch *async;
    struct rdma_cm_id *sentinel; /* hears of the removal when no rail's id does */
    struct vb_cm_owner cm_owner;
    unsigned users; /* CM ids bound to it, parts with a channel, the sentinel */
    bool gone;
    bool held;             /* by a reference of a list's */
    uint64_t failed_until; /* it is not tried; 0: it has not failed */
    uint64_t ports_down;   /* bit n: port n is */
    struct vb_late_id *late;
    int max_cqe;
    char name[16];
    struct vb_dev *next;
};

struct vb_cq {
    struct ibv_cq *cq;
    uint32_t size, used;
    size_t pins;             /* at most, of its memory */
    _Atomic unsigned armed;  /* verbs_cq.c says how */
    struct ibv_wc stash[16]; /* polled by arm, dispatched by the next drain; part lock */
    int stashed;
};

struct vb_part {
    struct rsk_shard_part base; /* fd: an epoll instance, so that the channel can go first */
    struct rsk_shard *shard;    /* no reference: the shard owns the part */
    struct vb_dev *dev;         /* NULL once the device has gone */
    struct ibv_comp_channel *channel;
    struct vb_lock lock;
    _Atomic unsigned n_cq;
    struct vb_cq *cq[VB_MAX_CQ];
    _Atomic unsigned armers; /* threads that use the CQs without the lock */
    /* verbs_mind.c */
    _Atomic bool minding;      /* its timer runs; when not, every CQ is armed */
    _Atomic bool due_wanted;   /* a rail of it has something due that could not be posted */
    _Atomic bool mind_wanted;  /* set with a kick by a drain that consumed the arming */
    _Atomic bool watched;      /* the progress thread hears of its events */
    _Atomic bool watch_wanted; /* set with a kick by who needs that */
    _Atomic uint32_t drains;   /* by threads other than the progress thread */
    _Atomic uint32_t sleepers; /* rails with futex wants: nobody else drains for them */
    uint32_t seen_drains, loop_drains;
    bool common, skip_arm; /* progress thread */
    _Atomic bool left;     /* by arm(RSK_BY_LOOP): who has drained it lately does so no more */
    struct vb_lock life;   /* the shard's last put (part_free) waits for callbacks that use it */
    struct rsk_watch *watch;
    struct rsk_timer *timer;
    uint64_t timer_at; /* when it fires */
    bool retrying;     /* the progress thread is in retry_due() */
    /* How long it pauses before what is due is tried again; it doubles. 0: nothing was left due. */
    _Atomic uint64_t due_ns;
    _Atomic bool due_anew; /* something new is due since, for which due_ns is too long */
    struct vb_part *next;  /* all parts; progress thread */
};

enum vb_state {
    VB_RESOLVING, /* initiator: address, then route */
    VB_ASKED,     /* initiator: REQ sent */
    VB_ACCEPTED,  /* acceptor: REP sent, ESTABLISHED and descriptors outstanding */
    VB_UP,
};

enum { /* vb_rail.due */
       VB_DUE_CREDIT = 1,
       VB_DUE_WAKE_BYTES = 2,
       VB_DUE_WAKE_MESSAGES = 4,
       VB_DUE_WAIT_BYTES = 8,
       VB_DUE_WAIT_MESSAGES = 16,
       VB_DUE_AGAIN = 32, /* somebody found the lock taken */
       VB_DUE_SOON = 64,  /* credit that goes with the next data, and need not go by itself yet */
       VB_DUE_MARK = 128, /* a request whose completion shows that what was before it has arrived */
       VB_DUE_PROBE = 256, /* the same for verbs_probe.c */
};

#define VB_ASKED_NONE UINT64_MAX

enum vb_mark { VB_NO_MARK, VB_MARK_DUE, VB_MARK_OUT };

struct vb_rail {
    struct rsk_rail base;
    _Atomic uint32_t rx_word, tx_word;
    _Atomic uint32_t want; /* RSK_RX, RSK_TX: somebody sleeps on the word */
    uint32_t index, gen;
    struct vb_part *part;
    struct vb_cq *cq;
    struct ibv_qp *qp; /* NULL: no QP any more; under lock */
    struct vb_lock lock;

    /* ---- sender: tx lock of the layer above, unless it says otherwise */
    _Atomic uint64_t tx, posted, freed;
    uint64_t tx_window; /* bytes kept at most */
    uint32_t max_message;
    _Atomic bool tx_on, open, stopped;
    uint8_t *staging;
    uint64_t landed;                  /* no less is in the peer's memory: tx_arrived */
    uint64_t r_ring, r_ctl, r_credit; /* the peer's memory */
    uint32_t r_rkey;
    struct vb_credit *credit_in; /* the peer writes it at any time: each word loaded once */

    /* ---- posting, under lock */
    uint32_t sq_posted, sq_unsignalled;
    _Atomic uint32_t sq_done;             /* written by the drain */
    _Atomic bool sq_short;                /* a post found no slot: completions are news */
    uint64_t sent;                        /* messages with an immediate */
    uint64_t data_sent;                   /* DATA messages */
    uint64_t peer_messages, peer_control; /* last valid values of credit_in */
    uint64_t ctl_sent;
    /* The least `consumed` at which a thread has asked for room and whose WAIT is not posted yet;
     * or VB_ASKED_NONE. */
    _Atomic uint64_t no_room_at;
    uint64_t wait_seen; /* what the last WAIT for bytes said */
    _Atomic uint64_t pub_consumed, pub_messages, pub_control; /* last published */
    _Atomic unsigned due; /* what could not be posted yet: any thread */
    /* what is due was tried in vain by verbs_mind.c, which tries again less and less often */
    _Atomic bool pausing;
    _Atomic unsigned waiting; /* VB_NEED_*: WAIT is out, WAKE has not come */
    _Atomic uint8_t mark;     /* enum vb_mark: the sender makes it due, who posts it puts it out */
    uint64_t mark_pos;        /* posted before it, */
    uint32_t mark_slot;       /* and its place: not written while it is out */
    uint8_t *ctl_out;
    struct vb_credit *credit_out; /* VB_CREDIT_OUT of them */
    uint32_t max_inline, lkey_out;

    /* ---- receiver */
    _Atomic uint64_t arrived; /* V, with VB_FROZEN: drain, rx_freeze */
    _Atomic uint64_t consumed;
    _Atomic bool rx_on;
    uint8_t *ring;
    _Atomic unsigned peer_needs;   /* VB_NEED_BYTES: WAIT was seen */
    _Atomic uint64_t peer_wake_at; /* position from which that WAIT is worth an answer */
    _Atomic uint64_t reposted;
    _Atomic uint64_t ctl_arrived, ctl_taken;
    uint8_t *ctl_in;
    uint64_t data_seen; /* DATA messages; drain only */

    /* ---- verbs_probe.c: progress thread */
    uint64_t probe_sent, probe_got, probe_at, probe_look_at;
    /* its place in the send queue, with bit 32, once it has one: under lock */
    _Atomic uint64_t probe_end;
    uint32_t probe_done,
        probe_looks; /* while it is out: sq_done, and how often that has been found */
    unsigned probe_quiet;

    /* ---- verbs_bye.c: progress thread */
    _Atomic bool parting; /* until its last words have been sent; probe_end is behind them */
    bool orphan;          /* and it has been destroyed by its owner */
    _Atomic bool broke;   /* it has failed once more since it had: any thread */
    uint64_t bye_ns;      /* until the next look */

    /* ---- drain only */
    unsigned news, to_repost;
    bool listed;
    struct vb_rail *next_news;

    /* ---- set-up and end: progress thread */
    enum vb_state state;
    struct vb_dev *dev;
    struct rdma_cm_id *id;
    struct vb_cm_owner cm_owner;
    struct ibv_pd *pd;
    struct ibv_mr *mr_in, *mr_out;
    struct rsk_own_map map_in, map_out;
    size_t off_ctl, off_credit, off_hello;
    struct rsk_timer *deadline;
    uint64_t until; /* when it fires, 0: none yet; of a parting one: it is over */
    struct rsk_tuple tuple;
    struct rsk_route route; /* initiator */
    uint32_t request;
    unsigned redirects;
    uint16_t began; /* the RDMA port that was asked first */
    bool initiator, established;
    /* It has the peer's descriptors, and memory to send from: before that nothing is posted to
     * the send queue. */
    _Atomic bool knows;
    _Atomic bool hello_in; /* the initiator's descriptors lie in the buffer */
    _Atomic bool down;     /* the progress thread shall move the QP to ERR */
    void *caller;          /* owner of connect() or find() */
    bool telling, over;    /* its owner is being told that it is up; destroyed */
    void (*done)(void *owner, struct rsk_rail *, int reason);
    const struct rsk_accept_ops *ops;
};

#define VB_FROZEN (UINT64_C(1) << 63)
enum { VB_CREDIT_OUT = 16 };

static inline struct vb_rail *vb_of(struct rsk_rail *r)
{
    return (struct vb_rail *)r;
}

/* The request at this place of the send queue is not among those that are out. */
static inline bool vb_is_done(struct vb_rail *r, uint32_t slot)
{
    return slot - atomic_load(&r->sq_done) - 1 >= VB_SQ;
}

/* The adapter writes it: one 64-bit load. Acquire, so that nothing is taken for older. A
 * software device may copy byte by byte, the lowest first: then a word that grows past a carry
 * is seen lower than it was, never higher than it will be. So what is lower than before is no
 * news, and no offence. */
static inline uint64_t vb_word(const uint64_t *p)
{
    return __atomic_load_n(p, __ATOMIC_ACQUIRE);
}

/* wr_id: kind, generation and index of the rail, and for sends the queue position after it. */
enum { VB_WR_SEND = 1, VB_WR_RECV, VB_WR_HELLO };

static inline uint64_t vb_wr_id(const struct vb_rail *r, unsigned kind, uint32_t position)
{
    return (uint64_t)kind << 60 | (uint64_t)(r->gen & 0xfff) << 48 |
           (uint64_t)(r->index & 0xffff) << 32 | position;
}

/* ---- verbs_rail.c */

extern struct vb_rail *_Atomic vb_rails[VB_MAX_RAILS];
extern unsigned vb_rails_high; /* indices in use are below; progress thread */

/* A rail without memory, QP or id, in the table. NULL: budget. */
struct vb_rail *vb_rail_new(struct rsk_shard *, size_t ring);
/* PD, receiving memory, QP and its receive work requests, on r->id's device. 0 or a reason. */
int vb_rail_open(struct vb_rail *);
void vb_on_room(bool (*fn)(void *owner, size_t bytes, bool stranger));
/* The peer's descriptors are noted (vb_rail_peer) and vb_rail_open_out has been called: posts
 * begin. 0 or a reason. */
int vb_rail_known(struct vb_rail *);
/* Sending memory, once the peer's ring size is known. 0 or a reason. */
int vb_rail_open_out(struct vb_rail *, unsigned ring_log2);
/* The peer's descriptors. 0, or RSN_PEER_PROTOCOL. */
int vb_rail_peer(struct vb_rail *, const struct vb_desc *);
void vb_rail_describe(const struct vb_rail *, struct vb_desc *);
/* The rdma_cm lets nobody but the host's root have a port below VB_PRIVILEGED, whatever TCP lets
 * him. Who may not has the RDMA port VB_STAND_IN above it, and is asked there if nobody is at
 * the port itself. */
enum { VB_PRIVILEGED = 1024, VB_STAND_IN = 65536 - VB_PRIVILEGED };
/* Ends every verbs and CM object of the rail; its memory stays readable. */
void vb_rail_close(struct vb_rail *);
/* And frees the rest. */
void vb_rail_free(struct vb_rail *);
/* Fails the rail, once; tells notify(), sleepers and the progress thread. A parting one's end is
 * not waited for any more. Any thread, no lock of this wire's. */
void vb_rail_fail(struct vb_rail *, int reason);
/* Progress thread: the QP goes to ERR. */
void vb_rail_down(struct vb_rail *);
void vb_header(const struct vb_rail *, struct vb_hdr *, size_t len);

/* ---- verbs_bye.c */

/* Fails the rail for its owner, who ends it; what has been posted is sent, if the rail is well. */
void vb_bye(struct vb_rail *, int reason);
/* Its owner destroys it, and it ends by itself when that is so. False: it may be freed. */
bool vb_bye_keeps(struct vb_rail *);
/* Ends those that are parting, at once. */
void vb_bye_all(void);
unsigned vb_byes(void); /* how many are parting */
void vb_bye_forget(void);

/* ---- verbs_post.c */

void vb_tx_start(struct rsk_rail *, uint64_t S);
size_t vb_tx_space(struct rsk_rail *, struct iovec v[2]);
int vb_tx_put(struct rsk_rail *, size_t n);
int vb_tx_open(struct rsk_rail *);
ssize_t vb_tx_push(struct rsk_rail *);
uint64_t vb_tx_freed(struct rsk_rail *);
size_t vb_tx_kept(struct rsk_rail *, uint64_t from, uint64_t to, struct iovec v[2]);
void vb_tx_stop(struct rsk_rail *);
int vb_ctl_send(struct rsk_rail *, const struct rsk_msg *);
/* The peer's consumption as far as it is known and possible; any thread, a hint. */
uint64_t vb_known(struct vb_rail *);
/* Adds to what is due, and posts what can be. Any thread, no lock of this wire's held. */
void vb_due(struct vb_rail *, unsigned due);
/* What all else is behind: VB_TEST zeros to the peer's ring, where nobody looks yet. 0 or -errno,
 * as the next one. */
int vb_post_test(struct vb_rail *);
/* The initiator's first SEND. */
int vb_post_hello(struct vb_rail *, const struct vb_desc *);

/* ---- verbs_recv.c */

void vb_rx_start(struct rsk_rail *, uint64_t S);
size_t vb_rx_peek(struct rsk_rail *, struct iovec v[2]);
void vb_rx_consume(struct rsk_rail *, size_t n);
uint64_t vb_rx_freeze(struct rsk_rail *);
int vb_ctl_recv(struct rsk_rail *, struct rsk_msg *);
/* n receive work requests with nothing in them. 0 or -errno. */
int vb_post_receives(struct vb_rail *, unsigned n);
/* One message has arrived: the drain. Returns 0 or a reason to fail the rail. */
int vb_receive(struct vb_rail *, uint32_t imm);

/* ---- verbs_part.c */

/* The shard's part for this device, made if need be. NULL with a reason. */
struct vb_part *vb_part_get(struct rsk_shard *, struct vb_dev *, int *reason);
/* Ends channel and CQs; the part stays in its shard, without news. */
void vb_part_close(struct vb_part *);
extern struct vb_part *vb_parts;

/* ---- verbs_cq.c */

/* Room for one more rail. NULL with a reason. Progress thread. */
struct vb_cq *vb_cq_reserve(struct vb_part *, int *reason);
/* After the QP has gone: takes its last completions out and gives the room back. */
void vb_cq_release(struct vb_part *, struct vb_cq *);
void vb_arm_cq(struct vb_part *, const struct vb_cq *); /* NULL: all. Then peek */
bool vb_part_arm(struct vb_part *);                     /* all, and peeks */
/* Looks into the CQs; what is found is kept for the next drain. */
bool vb_part_peek(struct vb_part *);
/* rsk_shard_part's drain, arm and disarm. */
int vb_shard_drain(struct rsk_shard_part *);
bool vb_shard_arm(struct rsk_shard_part *);
void vb_shard_disarm(struct rsk_shard_part *);
/* Wakes and tells the layer above; the drain, or whoever failed the rail. */
void vb_tell(struct vb_rail *, unsigned news);

/* ---- verbs_mind.c */

void vb_mind_start(struct vb_part *); /* progress thread, as the next two */
void vb_mind_watch(struct vb_part *); /* its events wake this thread from now on */
void vb_mind_end(struct vb_part *);
/* Somebody will sleep who has nobody else to drain for him, and has armed or will. Any thread. */
void vb_mind_watch_ask(struct vb_part *);
/* Something that is due could not be posted: tries it again after a while. Any thread. */
void vb_mind_due(struct vb_part *,
                 bool anew); /* anew: for a rail that has not been tried in vain */
/* Asks the progress thread to look at what the flags of parts and rails say. Any thread. */
void vb_kick(void);
int vb_kick_open(void);
void vb_kick_forget(void);

/* ---- verbs_probe.c */

extern _Atomic bool vb_probing;
/* Something begins to move: somebody shall look when it stops. Any thread. */
void vb_probe_ask(void);
static inline void vb_probe_wanted(void)
{
    if (!atomic_load_explicit(&vb_probing, memory_order_relaxed))
        vb_probe_ask();
}
void vb_probe_kicked(void);
void vb_probe_forget(void);

/* ---- verbs_cm.c */

int vb_connect(const struct rsk_tuple *, struct rsk_shard *, size_t ring, void *owner,
               void (*done)(void *, struct rsk_rail *, int));
/* One of a rail's id; data as in rdma_get_cm_event(3). */
void vb_rail_event(struct vb_rail *, enum rdma_cm_event_type, int status, const void *data,
                   size_t len);
socklen_t vb_sockaddr(int family, const uint8_t *addr, uint16_t port, struct sockaddr_storage *);

/* ---- verbs_setup.c */

/* Why something of a device, or the device, was not to be had, by errno. */
int vb_lack_reason(int err);

/* Ends a set-up that failed and frees the rail. */
void vb_setup_failed(struct vb_rail *, int reason);
/* Descriptors have come, or the rail failed before it was up. */
void vb_setup_step(struct vb_rail *);
/* The rail is up: hands it to the layer above, with the news that came too early for it. */
void vb_setup_done(struct vb_rail *);
/* Bounds the set-up to 3 s, or to what `until` says. */
void vb_setup_deadline(struct vb_rail *);
/* Conn parameters of either side. */
void vb_conn_param(struct rdma_conn_param *, const void *private_data, size_t len);
/* QP attributes that the rdma_cm leaves bad. */
void vb_tune_qp(struct vb_rail *);
/* Before the route is resolved, or the request accepted. */
void vb_tune_id(struct rdma_cm_id *);

/* ---- verbs_route.c */

void vb_on_route(void (*fn)(const struct rsk_tuple *, void *owner, struct rsk_route *));
/* By the connection's own addresses. */
struct rsk_route vb_own_route(const struct rsk_tuple *);
/* Where the rail of that connection goes; owner as for rsk_wire.on_route. */
struct rsk_route vb_route(const struct rsk_tuple *, void *owner);
/* The RDMA port from which it is asked for; 0: any. */
uint16_t vb_own_port(const struct rsk_tuple *);

/* ---- verbs_pin.c */

enum { VB_QP_PINS = 68 * 1024, VB_CQE_PINS = 64 };
/* ibv_reg_mr, or NULL with ENOMEM when it would take more than three quarters of RLIMIT_MEMLOCK. */
struct ibv_mr *vb_pin(struct ibv_pd *, struct rsk_own_map *, int access);
void vb_unpin(struct ibv_mr *, struct rsk_own_map *); /* NULL: nothing */
/* A queue of so many bytes is to be made, which a driver may have pinned; false with ENOMEM, as
 * above. vb_unpin_queue when it has ended, or was not to be had. */
bool vb_pin_queue(size_t n);
void vb_unpin_queue(size_t n);
void vb_pin_forget(void); /* forked child */

/* ---- verbs_listen.c */

int vb_listen(int family, uint16_t port, uint16_t peer, const struct rsk_accept_ops *ops);
void vb_unlisten(int family, uint16_t port);
struct vb_listener;
/* private_data is a copy; id is ours from now on. */
void vb_request(struct vb_listener *, struct rdma_cm_id *id, const void *private_data, size_t len);
void vb_listen_forget(void);
void vb_listen_shut(void);

/* ---- verbs_room.c */

/* Bytes that could be accepted now, by the newest credit; any thread. Not to fill so much: the peer
 * may take it back. */
size_t vb_tx_room(struct vb_rail *);
size_t vb_room_at(struct vb_rail *, uint64_t consumed);
/* With so much consumed: how much more makes rsk_much. At least 1. */
size_t vb_lacks(struct vb_rail *, uint64_t consumed);
/* Has the peer say when there is room, unless there is so much: then look again. Any
 * thread, as above. */
void vb_wait_for_room(struct vb_rail *, size_t enough);
/* For whoever wants these news (RSK_MUCH). */
static inline size_t vb_enough(const struct vb_rail *r, unsigned events)
{
    return events & RSK_MUCH ? rsk_much(&r->base, r->tx_window) : 1;
}
/* What there is; RSK_TX as `events` mean it. */
unsigned vb_look(struct vb_rail *, unsigned events);

#endif
