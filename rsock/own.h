/*
 * own.h - what a forked child must give up: the library's descriptors and shared mappings.
 * Descriptors are kept out of the application's way (512 and up, close on exec) and noted here;
 * mappings likewise. A child walks the notes without a lock. A fork waits while another thread
 * makes and notes a descriptor, or forgets and closes one; so do calls that could meet the number
 * it has meanwhile.
 */
#ifndef RSK_OWN_H
#define RSK_OWN_H

#include <stdalign.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

/* Around a call of the application's that takes a descriptor number, gives one back, or asks for
 * one: a new descriptor of ours has the lowest free number until it is hidden, and meanwhile the
 * call would get the next, or close ours, or replace it. take waits until no other thread is
 * between rsk_own_enter and _leave, for at most 0.1 s; threads about to enter wait in turn for such
 * calls, at most 26 ms, and less where that was in vain before. The pairs nest. Between the two,
 * what rsk_own_has and rsk_own_next answer stays true until the call is over. Any thread. */
void rsk_own_take(void);
void rsk_own_taken(void);
/* Waits likewise, at most 10 us, and holds nobody off: for calls on a number that
 * nothing is known of. */
void rsk_own_look_slowly(void);
/* Threads in steps. Calls on any number look here, so it is alone in its line. */
extern struct rsk_own_inside {
    alignas(64) _Atomic unsigned n;
} rsk_own_inside;
static inline void rsk_own_look(void)
{
    if (__builtin_expect(atomic_load_explicit(&rsk_own_inside.n, memory_order_relaxed) != 0, 0))
        rsk_own_look_slowly();
}

/* Around steps between which no other thread forks, nor is in such a call: a child has the
 * descriptor that they make and note, or forget and close, whole or not at all. They nest. The
 * steps must not block, nor wait for another thread, but for ld.so's lock. */
void rsk_own_enter(void);
void rsk_own_leave(void);
/* Is this thread in between? */
bool rsk_own_in_step(void);
/* Ends rsk_own_enter; use rsk_own_fd. */
int rsk_own_opened(int fd);
/* Evaluates `open`, hides its descriptor (sys_hide_fd) and notes it, with no fork in between. A
 * negative one is an error and handed back. The new number or -errno; on error the descriptor is
 * closed. Any thread. */
#define rsk_own_fd(open) (rsk_own_enter(), rsk_own_opened(open))
/* Notes a number that is hidden already and that a forked child shall keep as its own, and so do
 * its children. 0 or -errno. */
int rsk_own_keep(int fd);
/* Is this number one of ours? Two loads. */
bool rsk_own_has(int fd);
/* As many as the program, whose limit they count in, can do without: half of what its limit has
 * above 512. Any thread. */
unsigned rsk_own_most(void);
/* They are more than that. Any thread. */
bool rsk_own_crowded(void);
/* The lowest noted number that is not below fd, or -1. */
int rsk_own_next(int fd);
/* Closes each number from that on that is none of ours, as closefrom() does, where the kernel has
 * no close_range or a filter refuses it. 0, or -errno: for want of /proc nothing is closed, or not
 * all. Any thread. */
int rsk_own_close_others(unsigned first);
/* Forgets and closes; a negative fd is ignored. Any thread. */
void rsk_own_close(int fd);

/* Embedded in what owns the mapping. */
struct rsk_own_map {
    void *addr;
    size_t len;
    /* a forked child has it not (MADV_DONTFORK): there its place may be another mapping's */
    _Atomic bool left_out;
    struct rsk_own_map *_Atomic next;
    struct rsk_own_map *prev;
};

/* Notes a mapping; undone by rsk_own_unmap, which also unmaps. Any thread. */
void rsk_own_map(struct rsk_own_map *, void *addr, size_t len);
void rsk_own_unmap(struct rsk_own_map *);

/* The next child of this thread has the same descriptor table, not a copy: it closes nothing. */
void rsk_own_files_are_shared(bool);
/* Directly around a call that copies the process, in its parent: waits until no other thread is
 * between rsk_own_enter and _leave, and holds them off until the end. For at most 0.1 s, then the
 * child may have a descriptor too many. pthread_atfork calls both; they nest, and threads may fork
 * side by side. */
void rsk_own_fork_begin(void);
void rsk_own_fork_end(void);
/* The end in the child. */
void rsk_own_forked(void);
/* In a forked child: closes and unmaps everything noted, after rsk_own_forked. Takes no lock,
 * calls no malloc. */
void rsk_own_after_fork_child(void);

#endif
