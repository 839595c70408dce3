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
/* What a peer says that it refuses a rail for, as far as that is his to say: what would be blamed on this process, on the way to the peer's host or on
 * all of that host is RSN_PEER_REFUSED, and so is what this version does not know. */
int cfg_reason_told(unsigned number);
/* The sentence where the connection has ended without ever boarding. */
const char *cfg_reason_ended(int number);

#endif
