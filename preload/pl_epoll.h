/*
 * pl_epoll.h - what the files pl_epoll*.c share, and what poll needs to know of an epoll instance.
 *
 * An instance keeps a list of what the application registered (struct pl_member). While a member's
 * stream is plain, the kernel's registration is the application's own. Once a half is on a rail
 * the member is *hot*: the kernel's registration becomes EPOLLET with the few events that the
 * kernel can still tell, as hints, under our own data (a cookie); and readiness comes from the
 * ready list, whose members are asked with fb_sight, or else fb_ready, before anything is reported.
 *
 * Locks, in the order in which they may be taken:
 *   ctl       one per instance. The interest list and the kernel's registrations: epoll_ctl, and
 *             whoever brings a registration up to date. Held across epoll_ctl(2) and across
 *             fb_watch, fb_unwatch, fb_kernel_events, never across a wait. Without it two
 *             threads could leave the kernel with the older of two registrations.
 *   (the engine's: tx or rx, then a stream's watcher list)
 *   lock      one per instance, a leaf: ready, hot and dirty lists, the hash, and the fields of a
 *             member that are marked with it. No fb_* function is called under it but fb_plain,
 *             fb_kernel_events and fb_sight and fb_sight_arm, which only try a lock.
 *   links     64 of them by descriptor: pl_file.members. A leaf.
 *   pool      free members. A leaf.
 *   nest      pl_epoll.parents. A leaf.
 *   registry  the list of instances. A leaf: no other lock is taken under it.
 * wake(), which the engine calls with the watcher list locked, takes none of them: it pushes the
 * member on the inbox, a stack without lock, and may write the instance's eventfd.
 */
#ifndef PL_EPOLL_H
#define PL_EPOLL_H

#include "ipoib_fallback/lock.h"
#include "preload/pl.h"
#include "preload/pl_wait.h"
#include "rsock/shard.h"

#include <sys/epoll.h>

struct pl_link {
    struct pl_link *next, *prev; /* next == NULL: on no list */
};

struct pl_member {
    struct fb_watcher watcher; /* first: wake() gets it */
    struct pl_file *file;      /* reference; NULL: not a tracked stream (yet) */
    struct fb_stream *stream;  /* reference */
    struct pl_epoll *inner;    /* a nested instance; the reference is file's */
    _Atomic uint32_t refs;
    _Atomic uint32_t pending; /* what wake() has been told and nobody has looked at */
    _Atomic uint32_t inboxed;
    struct pl_member *inbox_next;
    struct pl_link ready, hot_link, dirty; /* lock */
    struct pl_member *hash_next;           /* lock; also the pool's free list */
    struct pl_member *file_next;           /* links */
    int fd;
    uint32_t events; /* lock: as the application registered them */
    uint64_t data;   /* lock */
    /* lock: EPOLLET: what has been reported while the stream's tally was the next field */
    uint32_t told;
    struct fb_tally tally;  /* lock: the stream's at the last report */
    uint32_t stash;         /* lock: events fetched from the kernel and not yet reported */
    uint32_t kevents;       /* ctl: what the kernel has */
    uint64_t kdata;         /* ctl */
    uint64_t flip;          /* lock: ep->flips when it became hot */
    uint64_t cooled;        /* lock: ep->flips when it became plain again */
    _Atomic uint32_t armed; /* EPOLLONESHOT: 0 once it has been reported */
    bool hot;               /* lock and ctl to write */
    bool elsewhere;         /* the same: hot, and its rail is not on our shard */
    bool dead;              /* lock */
    bool counts;            /* ctl: it waits for edges, and what it is told is counted (pl_told) */
    _Atomic uint8_t idle;   /* so often nothing was found, and it was not armed */
    uint32_t pass;          /* lock: ep->pass of who reported it last */
    /* The kernel has used a one-shot or an edge up, and nothing was reported, or has none to give:
     * it is to be registered anew */
    _Atomic bool again;
    bool parked;           /* lock and ctl to write: the application has removed it, see park() */
    struct pl_link parent; /* nest: on inner->parents */
    _Atomic unsigned inner_armed;
    /* From here on kept when the member is used again: others may look at any time. */
    uint32_t cookie;       /* low half of the data in the kernel: index and generation */
    _Atomic uint32_t live; /* lock to write: the cookie while it is on the interest list */
    struct pl_epoll *_Atomic ep;
};

#define PL_BUCKETS 16

struct pl_epoll {
    struct pl_link registry;
    uint64_t id;              /* no other instance of the process has had it, or will */
    _Atomic uint32_t refs;    /* numbers that stand for it, and who works on it */
    _Atomic uint32_t numbers; /* of them, the numbers */
    struct fb_lock ctl, lock;
    /* Read by every epoll_wait. */
    _Atomic bool touched;       /* the kernel may report data of ours: look at what it returns */
    _Atomic bool woven;         /* our descriptors are in the kernel's instance */
    _Atomic bool pinned;        /* it is served by the kernel alone, and its members with it */
    _Atomic uint32_t hot;       /* hot members */
    _Atomic uint32_t elsewhere; /* those of them whose news the progress thread brings */
    struct pl_member *_Atomic inbox;
    _Atomic uint32_t nready;  /* length of ready; written under lock */
    _Atomic uint32_t in_hand; /* so many are off it, being looked at; written under lock */
    _Atomic uint32_t ndirty;  /* length of dirty; the same */
    _Atomic uint32_t asleep;  /* threads in the kernel, or about to be: wake() must write efd */
    /* Two parts of asleep. resting: who serves the wait and has armed the shard; the others
     * began to sleep when no member was hot. joined: polls of the instance, and instances that
     * have it nested. */
    _Atomic uint32_t resting;
    _Atomic uint32_t joined;
    _Atomic uint32_t kicked; /* efd was written and nobody has come yet */
    _Atomic uint64_t flips;  /* how many times a member became hot, or plain again */
    _Atomic uint32_t tag;    /* high half of our data in the kernel */
    _Atomic uint32_t calls;
    _Atomic uint64_t kernel_at; /* when the kernel was last asked out of its turn */
    /* since its last turn: how many the list gave to arrays that got full */
    _Atomic uint32_t ahead;
    _Atomic bool both;               /* at that turn the kernel filled the array, too */
    _Atomic bool kernel_had;         /* something, when it was asked last */
    bool exact;                      /* ctl: every registration has a cookie (nested or polled) */
    bool updating;                   /* lock: a member may be on its way to hot, or back */
    struct pl_share *_Atomic share;  /* its shard is drained by the progress thread, too */
    int kfd, efd;                    /* hidden: the instance itself, the eventfd; -1 */
    struct rsk_shard *_Atomic shard; /* ctl to write; never changes once set */
    struct pl_link parents;          /* nest: members of other instances that stand for this one */
    _Atomic bool unwoven;            /* and stays so: before its shard's descriptors are walked */
    struct pl_link ready, hot_list, dirty; /* lock */
    uint32_t pass;                         /* lock: counts who collects from ready */
    struct pl_member **bucket;             /* lock */
    uint32_t buckets;
    _Atomic uint32_t nmembers; /* written under lock */
    int number;                /* of the application's, from epoll_create */
    struct pl_member *first_bucket[PL_BUCKETS];
};

#define PL_LAZY_MOST  8  /* rings that a spin looks at by itself */
#define PL_LAZY_TIMES 16 /* one that has had nothing for so long is told of all the same */

#define PL_EV_BITS     0x27ffu /* events that poll knows as well */
#define PL_COOKIE_WAKE 0xffffffffu

static inline uint64_t pl_cookie_data(const struct pl_epoll *ep, uint32_t cookie)
{
    return (uint64_t)atomic_load_explicit(&ep->tag, memory_order_relaxed) << 32 | cookie;
}

/* Takes ctl, and passes through `lock`. on_stub (pl_epoll.c) does with `lock` alone what
 * takes both, if it sees that nobody holds ctl; once we are through, it is either over, or
 * it will see us. */
static inline void pl_ctl_lock(struct pl_epoll *ep)
{
    fb_lock(&ep->ctl);
    fb_lock(&ep->lock);
    fb_unlock(&ep->lock);
}

/* No member is hot, nothing is waiting: the kernel alone answers. */
static inline bool pl_epoll_quiet(const struct pl_epoll *ep)
{
    return !atomic_load(&ep->hot) && !atomic_load(&ep->inbox) && !atomic_load(&ep->nready) &&
           !atomic_load(&ep->ndirty);
}

/* ---- pl_epoll_pool.c ---- */

struct pl_member *pl_member_new(struct pl_epoll *, int fd);
/* The member of a cookie if it is of this instance and alive; lock held. */
struct pl_member *pl_member_of(struct pl_epoll *, uint32_t cookie);
static inline void pl_member_get(struct pl_member *m)
{
    atomic_fetch_add_explicit(&m->refs, 1, memory_order_relaxed);
}
void pl_member_put(struct pl_member *);
/* The interest list. Who changes it holds ctl and lock, who looks one of the two. */
struct pl_member *pl_member_find(struct pl_epoll *, int fd);
void pl_member_insert(struct pl_epoll *, struct pl_member *);
void pl_member_remove(struct pl_epoll *, struct pl_member *);
void pl_member_each(struct pl_epoll *, void (*fn)(struct pl_member *, void *), void *arg);
/* pl_file.members. */
void pl_member_link(struct pl_file *, struct pl_member *);
void pl_member_unlink(struct pl_file *, struct pl_member *);
/* Up to max of them, each with a reference, and one to its instance; none whose instance is
 * about to end. */
int pl_member_some(struct pl_file *, struct pl_member **, int max);
/* False: its last reference is gone. */
bool pl_epoll_tryget(struct pl_epoll *);
void pl_pool_after_fork_child(void);
struct pl_epoll *pl_epoll_alloc(void); /* zeroed */
void pl_epoll_release(struct pl_epoll *);

void pl_link_add(struct pl_link *head, struct pl_link *);
void pl_link_del(struct pl_link *);

/* ---- pl_epoll_ready.c, pl_epoll_list.c, pl_epoll_place.c ---- */

void pl_member_wake(struct fb_watcher *, unsigned events);

static inline struct pl_member *pl_of_ready(struct pl_link *l)
{
    return (struct pl_member *)((char *)l - offsetof(struct pl_member, ready));
}

/* Puts it on the ready list to be tested; lock held. */
void pl_ready_add(struct pl_member *);
void pl_ready_del(struct pl_member *);
/* Its stream has changed track, its registration has not. lock held. */
void pl_dirty_add(struct pl_member *);
void pl_dirty_del(struct pl_member *);
/* A length of theirs; lock held. */
void pl_count(_Atomic uint32_t *length, int more);
/* Empties the inbox; lock held. */
void pl_ready_absorb(struct pl_epoll *);
/* Absorbs, and brings the registrations up to date of those whose streams changed track. */
void pl_ready_settle(struct pl_epoll *);
/* Tests what is on the ready list and fills out with what holds; at most max. out NULL: only
 * whether there is any (1); takes nothing off then that is ready. */
int pl_ready_collect(struct pl_epoll *, struct epoll_event *out, int max);
/* The same behind events of the kernel's, which was asked when flips was `since`: who has become
 * hot after that may be among them, and stays on the list for the next call. An array never names a
 * registration twice. */
int pl_ready_collect_behind(struct pl_epoll *, struct epoll_event *out, int max, uint64_t since,
                            bool lazy);
/* Who has found nothing: another thread looks at some just now, or did, of which one may be ready.
 * Gives it the processor. */
bool pl_ready_in_hand(struct pl_epoll *ep);
enum { PL_OTHERS = 64 /* looks, at most, because of that */ };
/* Shall the kernel be asked before the list? Counts a call. */
bool pl_ready_kernels_turn(struct pl_epoll *);
/* May who spins next look at what is on the ready list himself, not armed? Who goes to
 * sleep arms it. */
bool pl_ready_lazy(struct pl_epoll *);
/* What it is asked for. lock held. */
static inline uint32_t pl_ready_asked(const struct pl_member *m)
{
    return (m->events & PL_EV_BITS) | EPOLLERR | EPOLLHUP;
}
/* Who collects from now on; never 0, which is of who was never reported. lock held. */
static inline uint32_t pl_ready_pass(struct pl_epoll *ep)
{
    return ++ep->pass ? ep->pass : ++ep->pass;
}
/* So many are looked at without the lock, or with it, at a time: more would not be seen by another
 * thread that comes meanwhile. */
enum { PL_TOGETHER = 8 };
/* Nothing is there, and it may be on the list for who looks at its ring, unless it has
 * been so for long. */
bool pl_ready_stays_unarmed(struct pl_member *);
/* For an epoll_ctl while another thread sleeps in epoll_wait, which is not to be woken for nothing
 * (the kernel's epoll_ctl wakes nobody then): looks at the member's ring, and arms it. False: there
 * may be something to report. lock held. */
bool pl_ready_has_nothing(struct pl_member *);
/* From the list's head on, as long as they are such that can be looked at where they are: pass and
 * lazy as pl_ready_collect_behind has them, *todo so many at most, counted down. Count; out NULL:
 * 0. lock held. */
int pl_ready_collect_in_place(struct pl_epoll *, struct epoll_event *out, int max, uint64_t since,
                              bool lazy, uint32_t pass, uint32_t *todo);
/* What of the ready list its rings alone tell, none of it armed; at most max, count. *closer:
 * another is to be tested. May say nothing while another thread is at work on it. */
int pl_ready_glance(struct pl_epoll *, struct epoll_event *out, int max, bool *closer);
/* Is there nothing new in these events of a member that waits for edges? An edge comes again
 * when a stream changes track: the kernel gives one for each new registration, a frame that
 * arrives is one, and an end is heard of from ring and socket. tally: the stream's, 0 if
 * unknown. lock held. */
bool pl_told(const struct pl_member *, uint32_t events, struct fb_tally);
void pl_tell(struct pl_member *, uint32_t events, struct fb_tally); /* they are; lock held */
/* What of `events` the kernel says of the member's descriptor. */
uint32_t pl_ready_kernel(const struct pl_member *, uint32_t events);
/* Before saying that there is nothing: a level that holds must be reported though its news has not
 * come, because another thread drains its shard. True: collect once more. */
bool pl_ready_elsewhere(struct pl_epoll *);
/* Wakes one thread that sleeps in the kernel on this instance. */
void pl_ready_kick(struct pl_epoll *);
/* rsk_shard_drain and rsk_shard_drain_all by a thread that collects afterwards: its own wakes
 * need no eventfd. */
int pl_ready_drain(struct pl_epoll *);
int pl_ready_drain_all(struct pl_epoll *);

/* ---- pl_epoll_filter.c ---- */

/* Takes out what is ours. `since`: ep->flips before the kernel was asked, or, if so many events lie
 * in the array `before` these, before those were collected. Returns what is left; *ours: there was
 * something, so look at the ready list. */
int pl_filter(struct pl_epoll *, struct epoll_event *, int n, uint64_t since, int before,
              bool *ours);

/* ---- pl_epoll_reg.c ---- */

/* What the kernel's registration should be now. */
struct pl_reg {
    uint32_t events;
    uint64_t data;
    bool hot;
};
struct pl_reg pl_reg_wanted(struct pl_member *); /* ctl held */
/* It is or will be bound to this stream, whose edges may have to be counted. ctl held. */
void pl_reg_counts(struct pl_member *, const struct fb_stream *);
/* Around the kernel's call. ctl held. Hot begins before it and ends after it, so that an event of
 * the older registration is known for what it is. */
void pl_reg_before(struct pl_member *, struct pl_reg);
void pl_reg_after(struct pl_member *, struct pl_reg);
/* Brings the kernel's registration up to date; epfd: a number of the instance. ctl held. */
void pl_reg_update(struct pl_member *, int epfd);
/* The member was made by ADD, or its descriptor became a tracked stream: watch it. ctl held. */
void pl_reg_bind(struct pl_member *, struct pl_file *, int epfd);
/* The opposite of insert and bind, drops the reference. */
void pl_reg_detach(struct pl_member *);              /* ctl held */
void pl_reg_update_all(struct pl_epoll *, int epfd); /* ctl held */
/* Every registration gets a cookie, for good. ctl held. */
void pl_reg_all_cookies(struct pl_epoll *);
/* A new tag; the kernel gets it for everything of ours. ctl held. */
void pl_reg_retag(struct pl_epoll *);

/* ---- pl_epoll_life.c ---- */

/* Its eventfd and shard join the kernel's instance. 0, or the reason why they cannot: no
 * descriptors, no memory, or too many watches. ctl held. */
int pl_epoll_touch(struct pl_epoll *, int epfd);
/* The kernel alone serves it from now on, for this reason. */
void pl_epoll_pin(struct pl_epoll *, int reason);
/* Calls fn with a reference for each instance. */
void pl_epoll_each(void (*fn)(struct pl_epoll *, void *), void *arg);
/* Can streams board at all in this process? */
bool pl_epoll_useful(void);

/* ---- pl_epoll_shard.c: the descriptors of ours that are in the kernel's instance ---- */

/* One joins it, under our data. 0, or -errno: no memory, or too many watches. */
int pl_shard_weave(struct pl_epoll *, int fd);
/* rsk_shard_new's: the shard has one more, which joins now, or as soon as there is room. */
void pl_shard_fd_added(void *ep, int fd);
/* They leave it, for good; they get the tag that is new. ctl held. */
void pl_shard_unweave(struct pl_epoll *);
void pl_shard_retag(struct pl_epoll *);
/* Lets the progress thread drain the shard as well, for good: a rail on it belongs to a stream that
 * somebody waits for elsewhere. */
void pl_epoll_share(struct pl_epoll *);

/* ---- pl_epoll_nest.c: an instance inside poll, or inside another instance ---- */

/* The kernel's poll of its descriptor does not say the truth (our own descriptors are in it). */
static inline bool pl_epoll_special(const struct pl_epoll *ep)
{
    return atomic_load_explicit(&ep->woven, memory_order_acquire) &&
           !atomic_load_explicit(&ep->pinned, memory_order_acquire);
}
/* Would epoll_wait report something? */
bool pl_epoll_readable(struct pl_epoll *);
/* From here to part the instance's descriptor becomes readable by whatever happens: arm before each
 * sleep; true: look again. armed is the caller's, 0 at first. */
void pl_epoll_join(struct pl_epoll *);
bool pl_epoll_arm(struct pl_epoll *, _Atomic unsigned *armed);
void pl_epoll_part(struct pl_epoll *, _Atomic unsigned *armed);
/* m stands for a nested instance from now on; and no more. m's instance's ctl held. */
void pl_nest(struct pl_member *m, struct pl_epoll *inner);
void pl_unnest(struct pl_member *m);
void pl_nest_after_fork_child(void);
/* The inner instance has got descriptors of ours: those that it is nested in must serve it. */
void pl_nest_woven(struct pl_epoll *inner);
/* A poll, or another instance, waits for this stream, whose rail may be on the shard of an instance
 * where nobody waits. Any lock of another instance may be held. */
void pl_epoll_waited_elsewhere(struct fb_stream *);

#endif
