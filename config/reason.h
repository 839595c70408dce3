/*
 * reason.h - the numbers of reason.def, and their words.
 */
#ifndef CFG_REASON_H
#define CFG_REASON_H

enum cfg_reason {
#define REASON(number, NAME, name, sentence, advice) RSN_##NAME = number,
#include "config/reason.def"
#undef REASON
};

/* Never NULL: "unknown" and a sentence that says so for a number that is not in the table. */
const char *cfg_reason_name(int number);
const char *cfg_reason_sentence(int number);
const char *cfg_reason_advice(int number);
/* The reason that a peer gives for refusing a rail, as far as it can speak for it. Those that would
 * be held against this process, the way to the peer's host or all of that host are RSN_PEER_REFUSED
 * here, and so are those that this version does not know. */
int cfg_reason_told(unsigned number);
/* The sentence where the connection has ended without ever boarding. */
const char *cfg_reason_ended(int number);

#endif
