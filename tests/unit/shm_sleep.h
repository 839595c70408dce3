/*
 * shm_sleep.h - how the tests of the shm wire wait for a rail: on its word, as the library's
 * own receivers do.
 */
#ifndef TESTS_UNIT_SHM_SLEEP_H
#define TESTS_UNIT_SHM_SLEEP_H

#include <errno.h>
#include <stdbool.h>
#include <time.h>

#include "rsock/sys.h"
#include "rsock/wire.h"

/* Sleeps until the event, RSK_RX or RSK_TX, may hold. False: nothing came for 30 s, which is a
 * lost wake-up. */
static inline bool sleep_on_word(struct rsk_rail *r, unsigned event)
{
    _Atomic uint32_t *word = event == RSK_RX ? r->rx_word : r->tx_word;
    const struct timespec limit = {30, 0};
    uint32_t v = atomic_load(word);

    if (r->wire->arm(r, event, RSK_BY_FUTEX))
        return true;
    /* FUTEX_WAIT's time is relative */
    return (int)SYS6(SYS_futex, word, FUTEX_WAIT, v, &limit, 0, 0) != -ETIMEDOUT;
}

#endif
