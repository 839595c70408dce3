/*
 * epoll_fake.h - a stand-in for the engine below preload/: streams whose state a test sets. The
 * anchor is one end of a socket pair; on the "rail" there are only counters. Arming is one-shot and
 * news of an unarmed stream is swallowed, so that code that forgets to arm hangs.
 */
#ifndef TESTS_EPOLL_FAKE_H
#define TESTS_EPOLL_FAKE_H

#include "preload/pl.h"

#include <pthread.h>

struct rsk_shard;

struct fake {
    struct fb_stream s; /* first */
    int fd, peer;       /* the anchor, and the other end of it */
    _Atomic int bytes;  /* arrived on the rail */
    _Atomic int full;   /* not 0: the rail's sender has no room */
    _Atomic int hup;    /* not 0: POLLHUP and POLLRDHUP hold */
    _Atomic uint32_t armed;
    _Atomic int pinned; /* reason */
    _Atomic int arms, readies, nothings, glanced;
    bool alone;                      /* nothing of it is on the rail, whatever its gates say */
    struct rsk_shard *_Atomic shard; /* preferred; used for its news while on the rail */
    bool by_thread;        /* news comes from the caller of fake_arrive, not over the shard */
    bool has_words;        /* who polls may sleep on its word */
    bool words_gone;       /* it seems so, and when it comes to it there are none */
    _Atomic uint32_t word; /* who arrives bytes wakes who sleeps here, if it is armed by words */
    _Atomic int by_words;  /* so it is */
    _Atomic int word_refs; /* fb_words that were not put yet */
    bool unsure;           /* who arms it is told of bytes, who looks finds none */
    bool lingers;          /* a number of the library's may keep it open when it is closed */
    bool found;            /* so may one if its peer asks for it before that */
    bool shared;           /* with another process */
    bool deaf;             /* fb_ready does not ask the kernel: what it reports is denied */
    bool counts; /* fb_tally knows; then what is read must be counted: fake_read, fake_take */
    pthread_mutex_t count_lock;
    uint64_t taken, no_room;             /* count_lock */
    void (*_Atomic anew)(struct fake *); /* called when it is registered as on its rail, once */
    struct fake *with;                   /* for that */
    pthread_mutex_t lock;
    struct fb_watcher *watchers;
    struct fake *_Atomic dirty_next;
    _Atomic int dirty;
    struct fake *older; /* all of them: none is ever freed, as streams are not */
};

/* A stream that is tracked under its descriptor, plain. */
struct fake *fake_new(void);
/* The same, without the table knowing: fake_track does that later. */
struct fake *fake_untracked(void);
void fake_track(struct fake *);
/* Both halves go on the rail, or back. */
void fake_board(struct fake *);
void fake_leave(struct fake *);
/* From the one to the other. */
void fake_switch(struct fake *);
/* n bytes arrive on the rail. */
void fake_arrive(struct fake *, int n);
/* A byte arrives where the stream now is. False: the anchor has no room. */
bool fake_send(struct fake *);
/* n bytes arrive on the rail, and nobody is told yet. */
void fake_arrive_unheard(struct fake *, int n);
/* The application reads up to n bytes on the rail; how many there were. */
int fake_read(struct fake *, int n);
/* The same off the rail. */
int fake_take(struct fake *, int n);
void fake_room(struct fake *, bool room);
void fake_hangup(struct fake *);
/* What the wrapper of close does. */
void fake_close(struct fake *);

/* Tells its watchers; and the same by way of its shard. */
void fake_wake(struct fake *, unsigned events);
void fake_news(struct fake *);

/* Does anybody watch it? */
bool fake_watched(struct fake *);

/* Waiters of the fake's sleepers: how many threads sleep published. */
extern _Atomic int fake_sleepers;
/* What fb_spin_slow says. */
extern _Atomic bool fake_slow_wire;
/* Called at the end of each drain that told of n streams, by who still keeps others
 * from draining. */
extern void (*fake_drained)(int n);
/* Called by who sees at a glance that a stream has nothing. */
extern void (*fake_glances)(struct fake *);
/* How many threads wait for their turn to drain. */
extern _Atomic int fake_drains_due;
/* The next watch of the progress thread's is one too many. */
extern _Atomic bool fake_watch_fails;
/* The shard gets one more descriptor, which is its own from then on; those that come tell of news
 * in the place of those before. */
enum { FAKE_SHARD_FDS = 40 };
void fake_shard_gets(struct rsk_shard *, int fd);
/* Timers of the progress thread's fire, once each; how many. */
int fake_time_passes(void);
/* Sleeps this long. */
void fake_ms(int ms);

#endif
