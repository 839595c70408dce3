/*
 * sim_test.c - runs many schedules of the simulation (sim.h). A schedule is its seed:
 *     RAILSOCK_TEST_SEED=N RAILSOCK_SIM_RUNS=1 RAILSOCK_SIM_TRACE=1 build/plain/tests/sim_test
 * shows one of them step by step. Without RAILSOCK_SIM_RUNS: 20,000, or as many as fit into
 * fifteen seconds (sanitizers).
 */
#include "tests/shim/shim.h"
#include "tests/sim/sim.h"

#include "config/log.h"

#include <stdio.h>
#include <stdlib.h>

TEST_CASE(sim, schedules)
{
    const char *wanted = getenv("RAILSOCK_SIM_RUNS");
    uint64_t runs = wanted ? strtoull(wanted, NULL, 0) : 20000, i, begin = sys_now();
    uint64_t boarded = 0, resumed = 0;

    cfg_log_level = 0;
    if (getenv("RAILSOCK_SIM_TRACE")) {
        sim.trace = true;
        cfg_log_level = CFG_LOG_DEBUG;
    }
    for (i = 0; i < runs && (wanted || sys_now() - begin < 15000000000u); i++) {
        uint64_t seed = test_seed() + i;

        if (!sim_run(seed)) {
            FAILF(
                "seed %llu: %s (RAILSOCK_TEST_SEED=%llu RAILSOCK_SIM_RUNS=1 RAILSOCK_SIM_TRACE=1)",
                (unsigned long long)seed, sim.why, (unsigned long long)seed);
            return;
        }
        boarded += sim.boarded;
        resumed += sim.resumed;
    }
    printf("%llu schedules, %llu boardings, %llu frames back\n", (unsigned long long)i,
           (unsigned long long)boarded, (unsigned long long)resumed);
    if (i >= 1000) { /* a simulation in which nothing happens passes for nothing */
        EXPECT(boarded > i / 4);
        EXPECT(resumed > i / 8);
    }
}
