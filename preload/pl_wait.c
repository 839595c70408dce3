/*
 * pl_wait.c - deadlines, spinning, and a thread's blocks and eventfd (pl_wait.h).
 *
 * Everything here is the calling thread's own; no locks. A signal handler may call poll in the
 * middle of pl_block_get: `busy` makes it take a mapping of its own then.
 */
#include "preload/pl_wait.h"

#include "preload/pl_own.h"

#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <sched.h>
#include <sys/mman.h>

#include "config/env.h"
#include "ipoib_fallback/processors.h"
#include "ipoib_fallback/spin.h"
#include "rsock/own.h"
#include "rsock/section.h"
#include "rsock/sys.h"

#define NS_PER_S  1000000000u
#define NS_PER_MS 1000000u
#define NS_PER_US 1000u

/* ---- time */

/* Who does not wait needs no clock: that is over. */
static uint64_t after(uint64_t s, uint64_t ns)
{
    /* Far beyond any uptime, and far from overflow. */
    if (s > (PL_FOREVER / NS_PER_S) / 2)
        return PL_FOREVER;
    return s | ns ? sys_now() + s * NS_PER_S + ns : 0;
}

uint64_t pl_deadline_ms(int timeout)
{
    if (timeout < 0)
        return PL_FOREVER;
    return after((uint64_t)timeout / 1000, (uint64_t)(timeout % 1000) * NS_PER_MS);
}

uint64_t pl_deadline_ts(const struct timespec *timeout)
{
    if (!timeout)
        return PL_FOREVER;
    return after((uint64_t)timeout->tv_sec, (uint64_t)timeout->tv_nsec);
}

struct timespec *pl_remaining(uint64_t deadline, struct timespec *ts)
{
    uint64_t now, left;

    if (deadline == PL_FOREVER)
        return NULL;
    now = sys_now();
    left = now < deadline ? deadline - now : 0;
    ts->tv_sec = (time_t)(left / NS_PER_S);
    ts->tv_nsec = (long)(left % NS_PER_S);
    return ts;
}

bool pl_expired(uint64_t deadline)
{
    return deadline != PL_FOREVER && (deadline == 0 || sys_now() >= deadline);
}

int pl_remaining_ms(uint64_t deadline)
{
    uint64_t now, ms;

    if (deadline == PL_FOREVER)
        return -1;
    now = sys_now();
    if (now >= deadline)
        return 0;
    ms = (deadline - now + NS_PER_MS - 1) / NS_PER_MS;
    return ms > INT_MAX ? INT_MAX : (int)ms;
}

/* ---- spinning */

static _Thread_local struct fb_spin learnt;
static _Thread_local struct fb_trial trial;
static _Thread_local struct fb_crowd crowd;
static _Thread_local uint32_t spun; /* what the last wait was allowed */
static _Thread_local bool several;  /* and it was for several streams */

/* What a spin has where nothing says that longer ones pay. */
static uint32_t brief_most(void)
{
    return cfg_stream_defaults.spin_ns;
}

bool pl_filtered(void)
{
    return fb_filtered() || atomic_load_explicit(&pl_passive, memory_order_relaxed);
}

/* May it run on one processor alone? Who is there as well waits for as long as it spins. */
static bool kept_on_one(void)
{
    static _Atomic uint8_t known; /* 1 no, 2 yes */
    uint8_t k = atomic_load_explicit(&known, memory_order_relaxed);

    if (!k && pl_filtered()) /* which may forbid to ask */
        return false;
    if (!k) {
        unsigned long mask[128] = {0};
        long n = SYS6(SYS_sched_getaffinity, 0, sizeof mask, mask, 0, 0, 0);
        int cpus = 0;

        for (size_t i = 0; n > 0 && i < sizeof mask / sizeof mask[0]; i++)
            cpus += __builtin_popcountl(mask[i]);
        k = cpus == 1 ? 2 : 1;
        atomic_store_explicit(&known, k, memory_order_relaxed);
    }
    return k == 2;
}

static uint32_t spin_most(void)
{
    uint32_t most = fb_spin_most(), brief = brief_most();

    return most > brief && (trial.brief || (cfg.stream.spin_auto && kept_on_one())) ? brief : most;
}

bool pl_spins(void)
{
    return spun > FB_SPIN_LEAST;
}

uint64_t pl_spin_budget(unsigned streams)
{
    uint32_t most = streams ? spin_most() : 0;

    /* On a wire that is slow to wake (verbs) a device that is software works in threads of the
     * kernel's. They throw us off the processor and are not the peer, so that says nothing
     * against spinning. */
    if (crowd.trying && fb_spin_slow())
        crowd = (struct fb_crowd){0};
    several = streams > 1;
    spun = 0;
    if (most && !atomic_load_explicit(&fb_one_processor, memory_order_relaxed) &&
        !(several && fb_crowd_rests(&crowd)))
        spun = fb_spin_next(&learnt, most);
    /* So brief a spin would be one look more, and the caller has just looked. */
    return pl_spins() ? spun : 0;
}

void pl_spin_result(uint64_t began, uint64_t now)
{
    uint64_t ns;

    if (!spun && !crowd.trying)
        return;
    if (!now)
        now = sys_now();
    ns = now - began;
    if (!spun)
        ;
    else if (pl_spins() && ns <= spun + NS_PER_US) /* it ends with a whole look */
        fb_spin_served(&learnt, spin_most(), ns);
    else
        fb_spin_slept(&learnt, spin_most(), ns);
    if (spun > brief_most() && ns > brief_most())
        spin_long();
    if (crowd.trying) {
        fb_crowd_turn(&crowd, now);
        return;
    }
    if (several && !fb_spin_slow() && fb_crowd_waited(&crowd) && !pl_filtered())
        crowd_look(&crowd, now);
    if (fb_trial_waited(&trial, ns, brief_most()) && fb_spin_most() > brief_most())
        fb_trial_turn(&trial, now, &fb_trial_brief);
}

void pl_spin_ready(unsigned n)
{
    fb_trial_ready(&trial, n);
    fb_trial_ready(&crowd.trial, n);
}

/* ---- blocks */

enum { PAGE = 4096, BLOCK_MIN = 16384, KEEP_MAX = 1 << 20, KEEP = 3 };

static _Thread_local struct pl_thread {
    struct pl_block *waits; /* innermost first */
    struct pl_block *spare;
    int spares;
    int efd;    /* number + 1 */
    bool busy;  /* the lists are being changed */
    bool keyed; /* the destructor will run */
} self;

static pthread_key_t key;
static bool key_made;

static void unmap(struct pl_block *b)
{
    munmap(b, b->size);
}

static void undo(struct pl_block *b)
{
    void (*fn)(struct pl_block *) = b->undo;

    b->undo = NULL;
    if (fn)
        fn(b);
}

/* The thread ends. A wait of its own cannot be in progress, only dead ones. */
static void thread_end(void *arg)
{
    struct pl_block *b;

    (void)arg;
    while ((b = self.waits) != NULL) {
        self.waits = b->outer;
        undo(b);
        unmap(b);
    }
    while ((b = self.spare) != NULL) {
        self.spare = b->outer;
        unmap(b);
    }
    if (self.efd)
        rsk_own_close(self.efd - 1);
    /* A destructor of somebody else's may poll after this: then it begins anew. */
    self = (struct pl_thread){0};
}

/* While there are keys, and with a value that needs no memory: the first 32 need none. */
__attribute__((constructor)) static void at_load(void)
{
    key_made = pthread_key_create(&key, thread_end) == 0;
}

/* False: the end of this thread will not be heard of, so it must keep nothing. */
static bool at_thread_end(void)
{
    if (!self.keyed)
        self.keyed = key_made && pthread_setspecific(key, &self) == 0;
    return self.keyed;
}

static void keep(struct pl_block *b)
{
    if (b->size > KEEP_MAX || self.spares >= KEEP || !self.keyed) {
        unmap(b);
        return;
    }
    b->outer = self.spare;
    self.spare = b;
    self.spares++;
}

/*
 * A wait whose frame is not above ours (stacks grow down) has been left by longjmp. On an
 * alternate signal stack the comparison would mean nothing.
 */
static void reclaim(const void *frame)
{
    struct pl_block *b;

    if (!self.waits || (uintptr_t)self.waits->frame > (uintptr_t)frame || rsk_on_signal_stack())
        return;
    while ((b = self.waits) != NULL && (uintptr_t)b->frame <= (uintptr_t)frame) {
        self.waits = b->outer;
        undo(b);
        keep(b);
    }
}

static struct pl_block *map_block(size_t size)
{
    struct pl_block *b;

    size = (size + PAGE - 1) & ~((size_t)PAGE - 1);
    if (size < BLOCK_MIN)
        size = BLOCK_MIN;
    /* libc's own, which nobody interposes, so that ThreadSanitizer knows of the memory. */
    b = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (b == MAP_FAILED)
        return NULL;
    b->size = size;
    return b;
}

struct pl_block *pl_block_get(size_t size, const void *frame, void (*fn)(struct pl_block *))
{
    struct pl_block *b = NULL, **p;
    bool listed = !self.busy;

    if (listed) {
        self.busy = true;
        atomic_signal_fence(memory_order_seq_cst);
        (void)at_thread_end();
        reclaim(frame);
        for (p = &self.spare; *p; p = &(*p)->outer) {
            if ((*p)->size < size)
                continue;
            b = *p;
            *p = b->outer;
            self.spares--;
            break;
        }
    }
    if (!b)
        b = map_block(size);
    if (b) {
        b->frame = frame;
        b->undo = fn;
        b->listed = listed;
        if (listed) {
            b->outer = self.waits;
            self.waits = b;
        }
    }
    if (listed) {
        atomic_signal_fence(memory_order_seq_cst);
        self.busy = false;
    }
    return b;
}

void pl_block_put(struct pl_block *b)
{
    struct pl_block **p;

    undo(b);
    if (!b->listed || self.busy) {
        /* Not on the list, or a handler in the middle of a change: the list keeps it
         * as a dead wait. */
        if (!b->listed)
            unmap(b);
        return;
    }
    self.busy = true;
    atomic_signal_fence(memory_order_seq_cst);
    for (p = &self.waits; *p && *p != b; p = &(*p)->outer)
        ;
    if (*p) {
        *p = b->outer;
        keep(b);
    }
    atomic_signal_fence(memory_order_seq_cst);
    self.busy = false;
}

/* ---- the thread's eventfd */

int pl_thread_fd(void)
{
    if (!self.efd) {
        int fd = at_thread_end() ? rsk_own_fd(sys_eventfd(0, O_NONBLOCK | O_CLOEXEC)) : -EAGAIN;

        if (fd < 0)
            return fd;
        self.efd = fd + 1;
    }
    return self.efd - 1;
}

void pl_wait_after_fork_child(void)
{
    /* rsk_own_after_fork_child closes the eventfd. Streams are forgotten: nothing to undo. */
    for (struct pl_block *b = self.waits; b; b = b->outer)
        b->undo = NULL;
    self.efd = 0;
    self.busy = false;
}
