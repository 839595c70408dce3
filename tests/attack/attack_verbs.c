/*
 * attack_verbs.c - lies of a peer on the verbs wire: immediates, work requests and remote keys that an
 * honest one never posts. What it does is posted on its own queue pair, past its own bookkeeping.
 */
#include "tests/attack/attack.h"

#include "rsock/verbs_int.h"

const struct lie verbs_lies[] = {
    {0},
};
