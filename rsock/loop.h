/*
 * loop.h - the progress thread: one per process, none before the first rendezvous,
 * all signals blocked, gone in a forked child. It runs callbacks for descriptors,
 * timers and posted jobs, on io_uring, or on epoll where io_uring is refused.
 * TCP anchors are always watched by an epoll instance inside it, never by io_uring
 * (a pending io_uring poll holds a reference, and close() would send no FIN).
 *
 * Callbacks run one at a time on the progress thread and do not block.
 */
#ifndef RSK_LOOP_H
#define RSK_LOOP_H

#include <stdbool.h>
#include <stdint.h>

struct rsk_watch;
struct rsk_timer;

/* Starts the thread if it does not run. 0 or -errno. Any thread. use_uring: false forces epoll. */
int rsk_loop_start(bool use_uring);
bool rsk_loop_running(void);
bool rsk_loop_is_self(void);
/* "io_uring" or "epoll". */
const char *rsk_loop_backend(void);

/* Runs fn(arg) on the progress thread, soon, in the order of posting. Any thread, not in a
 * signal handler. 0, -ENOMEM, or -ESRCH when the thread does not run. */
int rsk_loop_post(void (*fn)(void *arg), void *arg);

/* A job in memory of the caller's, zeroed but for fn and arg. */
struct rsk_job {
    void (*fn)(void *arg);
    void *arg;
    struct rsk_job *next;
    bool allocated;      /* by rsk_loop_post */
    _Atomic bool posted; /* it stands in the queue; false when fn runs. A forked child clears it */
};
/* The same as rsk_loop_post, also in a signal handler. Nothing happens while it is
 * posted already. */
int rsk_loop_post_job(struct rsk_job *);

/* Watches fd (level-triggered POLLIN style bits in `events`; EPOLLET allowed when anchor is
 * true). fn is called with the poll bits. Progress thread only, as are rsk_unwatch and the timers
 * below. The caller keeps fd open until after rsk_unwatch. After rsk_unwatch returns fn is not
 * called again. */
struct rsk_watch *rsk_watch_fd(int fd, uint32_t events, bool anchor,
                               void (*fn)(void *arg, uint32_t events), void *arg);
void rsk_unwatch(struct rsk_watch *);
/* Any thread, on an anchor's watch that nobody unwatches at the same time: its number is about to
 * be closed or to mean something else. The kernel forgets the watch, which it could not be told to
 * do afterwards if the socket lives on under another number; fn may still be called for an event
 * that was under way. rsk_unwatch must follow. */
void rsk_watch_drop(struct rsk_watch *);

/* Is there at that address a part of the io_uring that the thread itself has? Progress thread. */
bool rsk_loop_maps(uintptr_t at);

/* Calls fn once after ns nanoseconds. Cancel before it fired, not after. */
struct rsk_timer *rsk_timer_add(uint64_t ns, void (*fn)(void *arg), void *arg);
void rsk_timer_cancel(struct rsk_timer *);

/* Asks the thread to end and joins it. Not from the thread itself. */
void rsk_loop_stop(void);
/* Ends the thread but keeps everything that it had to do: watches, timers and jobs, also those
 * posted meanwhile, wait for the last of as many rsk_loop_resume; rsk_loop_start is -EBUSY until
 * then. When this returns the kernel does not count the thread any more. The resumed one is the
 * caller's child: it has the caller's credentials, namespaces and filters. Any other thread.
 * resume: 0, or -errno when there cannot be a thread; the next rsk_loop_start tries again. */
void rsk_loop_pause(void);
int rsk_loop_resume(void);
/* It has been ended, and could not go on: its work waits, and posts are taken all the same. */
bool rsk_loop_lost(void);
/* For a lost thread: the caller does some of its work (what can be read, is due, or has been
 * posted), and is the progress thread meanwhile. False: the thread runs, or is paused, and
 * nothing was done. True, with nothing done, if another thread is at it. No lock held, not in a
 * signal handler. */
bool rsk_loop_turn(void);
/* No library is opened any more: another root directory may have something else under its name. */
void rsk_loop_no_libraries(void);
bool rsk_loop_may_load(void);
/* In a forked child: forgets the thread and closes every descriptor of the loop's and of
 * every wire's that came over. Async-signal-safe as far as fork in a threaded program needs. */
void rsk_loop_after_fork_child(void);
/* fn is called on the progress thread each time it is started (a forked child's, too), but not when
 * it goes on after a pause. One; registered at load time. */
void rsk_at_loop_start(void (*fn)(void *unused));
/* fn is called by rsk_loop_after_fork_child. At most 8; registered at load time. */
void rsk_at_fork_child(void (*fn)(void));

#endif
