/*
 * sim_test.c - runs many schedules of the simulation (sim.h), on each processor some. A schedule is
 * its seed; the first that fails is made shorter and shown step by step, and
 *     RAILSOCK_TEST_SEED=N RAILSOCK_SIM_RUNS=1 build/plain/tests/sim_test
 * shows it again. RAILSOCK_SIM_TRACE=1 shows all steps of schedules that do not fail, too.
 *
 * Without RAILSOCK_SIM_RUNS: 50,000, under a sanitizer as many as fit into fifteen seconds.
 */
#include "tests/shim/shim.h"
#include "tests/sim/sim.h"

#include "config/log.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define MOST_WORKERS 16
#define SHARED       (MOST_WORKERS * sizeof(struct worker) + sizeof(*stop))

#ifdef RAILSOCK_SANITIZED
#define LIMIT_NS 15000000000u
#else
#define LIMIT_NS UINT64_MAX
#endif

struct worker {
    uint64_t seed; /* of the schedule that is running */
    uint64_t done, boarded, resumed, fronts;
    bool failed;
};

static _Atomic bool *stop; /* one has failed */

/* In a child of its own, so that one that crashes or hangs is known by its seed. */
static void work(struct worker *w, uint64_t first, uint64_t step, uint64_t runs, bool limited)
{
    uint64_t begin = sys_now();

    for (uint64_t i = first; i < runs && !*stop; i += step) {
        if (limited && sys_now() - begin > LIMIT_NS)
            return;
        w->seed = test_seed() + i;
        if (!sim_run(w->seed, NULL)) {
            w->failed = true;
            *stop = true;
            return;
        }
        w->done++;
        w->boarded += sim.boarded;
        w->resumed += sim.resumed;
        w->fronts += sim.fronts;
    }
}

static void show(uint64_t seed)
{
    static uint8_t without[SIM_STEPS];
    unsigned left = sim_shrink(seed, without);

    fprintf(stderr, "seed %llu, the %u steps of %u that it takes:\n", (unsigned long long)seed,
            left, sim.planned);
    sim.trace = true;
    cfg_log_level = CFG_LOG_DEBUG;
    sim_run(seed, without);
    FAILF("seed %llu: %s (RAILSOCK_TEST_SEED=%llu RAILSOCK_SIM_RUNS=1)", (unsigned long long)seed,
          sim.why, (unsigned long long)seed);
}

TEST_CASE(sim, schedules)
{
    const char *wanted = getenv("RAILSOCK_SIM_RUNS");
    uint64_t runs = wanted ? strtoull(wanted, NULL, 0) : 50000, done = 0, boarded = 0, resumed = 0,
             fronts = 0;
    cpu_set_t cpus;
    int workers = sched_getaffinity(0, sizeof(cpus), &cpus) == 0 ? CPU_COUNT(&cpus) : 1;
    pid_t pid[MOST_WORKERS];
    struct worker *w;
    void *shared;

    shared = mmap(NULL, SHARED, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    ASSERT(shared != MAP_FAILED);
    w = shared;
    stop = (_Atomic bool *)(w + MOST_WORKERS);
    cfg_log_level = 0;
    if (getenv("RAILSOCK_SIM_TRACE")) {
        sim.trace = true;
        cfg_log_level = CFG_LOG_DEBUG;
    }
    if (workers > MOST_WORKERS)
        workers = MOST_WORKERS;
    if ((uint64_t)workers > runs)
        workers = 1;
    for (int i = 0; i < workers; i++) {
        pid[i] = fork();
        ASSERT(pid[i] >= 0);
        if (pid[i] == 0) {
            work(&w[i], (uint64_t)i, (uint64_t)workers, runs, !wanted);
            _exit(w[i].failed);
        }
    }
    for (int i = 0; i < workers; i++) {
        int status;

        while (waitpid(pid[i], &status, 0) < 0)
            ;
        done += w[i].done;
        boarded += w[i].boarded;
        resumed += w[i].resumed;
        fronts += w[i].fronts;
        if (w[i].failed)
            show(w[i].seed);
        else if (status != 0)
            FAILF("seed %llu: the process ended with status %#x", (unsigned long long)w[i].seed,
                  (unsigned)status);
    }
    printf("%llu schedules, %llu boardings, %llu frames back, %llu times bytes in front\n",
           (unsigned long long)done, (unsigned long long)boarded, (unsigned long long)resumed,
           (unsigned long long)fronts);
    if (done >= 1000) { /* a simulation in which nothing happens passes for nothing */
        EXPECT(boarded > done / 4);
        EXPECT(resumed > done / 8);
        EXPECT(fronts > done / 400);
    }
    munmap(shared, SHARED);
}
