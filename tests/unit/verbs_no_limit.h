/*
 * verbs_no_limit.h - verbs_pin.c's word on queues, where there is no limit of locked memory.
 * Defines them: for one file of a program.
 */
#ifndef TESTS_UNIT_VERBS_NO_LIMIT_H
#define TESTS_UNIT_VERBS_NO_LIMIT_H

#include "rsock/verbs_int.h"

bool vb_pin_queue(size_t n)
{
    (void)n;
    return true;
}

void vb_unpin_queue(size_t n)
{
    (void)n;
}

int vb_lack_reason(int err)
{
    return err;
}

#endif
