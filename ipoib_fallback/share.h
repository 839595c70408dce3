/*
 * share.h - how many questions for a rail may be under way at a time, so that peers which do not
 * answer leave room for those that do. One peer gets no more of them than are left for all others:
 * a single one gets half of all, the next one half of the rest. A peer is here a host, over RDMA,
 * or a port of this host, over shared memory. For rdv.c; progress thread.
 */
#ifndef FB_SHARE_H
#define FB_SHARE_H

#include "rsock/wire.h"

enum share { SHARE_SHM, SHARE_VERBS };

/* How long t is to wait, in rounds, of which more wait longer; 0: it may be asked now. */
uint32_t share_rounds(enum share, const struct rsk_tuple *t);
/* It is asked, as share_rounds() has allowed; or heat.c's own is, whatever that says. */
void share_ask(enum share, const struct rsk_tuple *t);
/* Each that has been asked once is answered once. */
void share_answered(enum share, const struct rsk_tuple *t);
/* Nothing is under way: a forked child. */
void share_forget(void);

#endif
