/*
 * shard.h - what waiters drain. A shard gathers the news of many rails, so that
 * finding the ones with news costs O(news): on shm a page of dirty bits with an
 * eventfd (one of each per peer uid), on verbs a completion channel with a chain of
 * completion queues. An epoll instance has one of its own, the process has a common
 * one that the progress thread watches.
 *
 * Waiting on a shard is always: drain; else spin; else arm, drain all, sleep on
 * the shard's descriptors, disarm.
 */
#ifndef RSK_SHARD_H
#define RSK_SHARD_H

#include <stdbool.h>
#include <stdint.h>

struct rsk_shard;

/* A descriptor that becomes readable when an armed shard gets news. Descriptors are added
 * while the shard lives (a first peer of another uid, a first verbs rail), never removed before
 * its end; each is reported once to the function given to rsk_shard_new. They are never read
 * by the caller; watch them with EPOLLIN | EPOLLET. */
typedef void rsk_shard_fd_fn(void *arg, int fd);

/* A new shard with one reference. fd_added may be called at once and later, on any thread.
 * NULL when out of memory or descriptors. */
struct rsk_shard *rsk_shard_new(rsk_shard_fd_fn *fd_added, void *arg);
struct rsk_shard *rsk_shard_get(struct rsk_shard *);
/* Drops a reference; rails hold one each. The last one frees. Progress thread or owner. */
void rsk_shard_put(struct rsk_shard *);
/* fn is called when only one reference is left, the caller's own, which nobody else needs any more:
 * on the thread that dropped the last but one. At most once, if nobody takes another one. fn must
 * not drop the remaining one itself. */
void rsk_shard_on_lonely(struct rsk_shard *, void (*fn)(void *), void *arg);
/* Is one reference left? The caller has it. */
bool rsk_shard_is_lonely(const struct rsk_shard *);
/* After this fd_added is not called any more and no call of it is running. */
void rsk_shard_orphan(struct rsk_shard *);
/* fn for each of its descriptors so far, as the number that the pointer is. Not while one may be
 * added: the progress thread. */
void rsk_shard_fds(struct rsk_shard *, void (*fn)(void *fd));
/* fn for each of them, with what rsk_shard_new was given, unless it is orphaned; until this returns
 * it is not, and gets no other. False: one call was. Any thread, but not from fd_added or fn. */
bool rsk_shard_each(struct rsk_shard *, bool (*fn)(void *arg, int fd));

/* Calls notify() of every rail with news. Any thread; one drains at a time, a second one returns -1
 * at once, though there may be news that the first one is already past. No system call when nothing
 * is there and the shard is not armed. Returns the number of rails that were notified. */
int rsk_shard_drain(struct rsk_shard *);
/* The same, after whoever drains now (a futex sleep, bounded by its notify()s): what came before
 * the call has been told when it returns. For those who go to sleep, or say that nothing has come.
 * Not from inside notify, nor with a lock that notify takes. */
int rsk_shard_drain_all(struct rsk_shard *);
/* From now on news makes a descriptor fire once. Full fence. Returns true if there is news
 * already: drain instead of sleeping. */
bool rsk_shard_arm(struct rsk_shard *);
void rsk_shard_disarm(struct rsk_shard *);
/* For who sleeps on something else, and has the progress thread drain this shard for him: arms it,
 * and what was there before has been told when it returns. rsk_shard_disarm ends it. Where
 * rsk_shard_drain_all may be called. */
void rsk_shard_lean(struct rsk_shard *);

/* The process's common shard, watched by the progress thread. NULL before rsk_loop_start(). */
struct rsk_shard *rsk_shard_common(void);

#endif
