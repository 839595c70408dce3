/*
 * sim_shrink.c - makes a schedule that fails as short as can be: leaves out halves, quarters, ...
 * single steps, and keeps what is left if it still fails. The random numbers of a step are its own
 * (sim_run), so that those that stay do what they did, as far as the world about them is the same.
 */
#include "tests/sim/sim.h"

#include <string.h>

/* One of the step numbers that are still in, or `all`. */
static unsigned next_in(const uint8_t *without, unsigned from, unsigned all)
{
    while (from < all && without[from])
        from++;
    return from;
}

unsigned sim_shrink(uint64_t seed, uint8_t *without)
{
    uint8_t before[SIM_STEPS];
    unsigned all, left;
    bool trace = sim.trace, less = true;

    sim.trace = false;
    memset(without, 0, SIM_STEPS);
    sim_run(seed, NULL);
    left = all = sim.planned;
    for (unsigned size = all / 2 + 1; less || size > 1; size = size > 1 ? size / 2 : 1) {
        if (size <= 1)
            less = false;
        for (unsigned from = next_in(without, 0, all); from < all;
             from = next_in(without, from, all)) {
            unsigned to = from, n = 0;

            memcpy(before, without, sizeof(before));
            for (; n < size && to < all; to = next_in(without, to, all), n++)
                without[to] = 1;
            if (sim_run(seed, without)) { /* needed */
                memcpy(without, before, sizeof(before));
            } else {
                left -= n;
                less = true;
            }
            from = to;
        }
    }
    sim.trace = trace;
    return left;
}
