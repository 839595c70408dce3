/*
 * silent.h - peers that do not answer are not asked again and again. For rdv.c; progress thread.
 */
#ifndef FB_SILENT_H
#define FB_SILENT_H

#include "ipoib_fallback/stream.h"

/* For how long nobody of t's host and port shall be asked, in ns, and why; 0: they may
 * be asked now. */
uint64_t silent_for(const struct rsk_tuple *t, int *reason);
/* It is asked, which silent_answer() ends. */
void silent_ask(const struct rsk_tuple *t);
/* Nothing is under way: a forked child. */
void silent_forget(void);
/* What came of asking: 0 or RSN_*. */
void silent_answer(const struct rsk_tuple *t, int reason);

/* Whether somebody there has just said that it has no room: then only those are worth a question
 * that heat.c calls. */
bool silent_full(const struct rsk_tuple *t);
/* reason: what it has said, 0: there is a rail. */
void silent_said(const struct rsk_tuple *t, int reason);

#endif
