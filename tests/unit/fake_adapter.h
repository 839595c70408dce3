/*
 * fake_adapter.h - one part of a shard whose completion queues are on an adapter that is not there,
 * with what else verbs_cq.c calls.
 */
#ifndef RAILSOCK_TESTS_FAKE_ADAPTER_H
#define RAILSOCK_TESTS_FAKE_ADAPTER_H

#include "rsock/verbs_int.h"

enum kind {
    ALWAYS, /* rxe: each arming counts */
    /* mlx5, hns, efa: it bears a number that grows with each event that is taken; an old one is
     * ignored */
    NUMBER,
    EAGER, /* the same, and what is there already fires */
    FLAG,  /* irdma: one that comes before the event is taken waits until then */
    KINDS
};

enum { CQS = 3 };

extern struct vb_part part;
extern struct vb_cq cqs[CQS];
extern unsigned n_cqs;
extern _Atomic uint32_t armed;   /* the shard's */
extern _Thread_local bool self;  /* this is the progress thread */
extern _Atomic unsigned ignored; /* armings */
extern _Atomic unsigned arms, events, empty_reads, taken;
extern void (*interrupted)(void);
extern void (*between)(
    bool locked); /* something else may come here; locked: and the caller has the part's lock */

/* A part with n of them; nothing is armed. */
void begin(enum kind k, unsigned n);
/* A completion comes into the queue; its event is on its way until the interrupt. */
void complete(unsigned i);
void interrupt(void);
/* What is in it; and without anybody's having polled it. */
unsigned left_in(unsigned i);
void throw_away(unsigned i);
int drain(void);
/* Below n, from the seed of *dice_state. */
unsigned dice(unsigned n);
extern uint64_t dice_state;

#endif
