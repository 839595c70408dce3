/*
 * sim.h - a deterministic simulation of one connection: both ends of the real engine
 * (ipoib_fallback/, all but its system calls) in one process and one thread, over a simulated TCP
 * (sim_tcp.c), wire (sim_wire.c), progress thread per end (sim_loop.c), applications that check
 * what they get (sim_app.c), and a scheduler that does one small thing at a time, at random from a
 * seed (sim_run.c). sim_send.c and sim_recv.c are the applications' threads, one or two that send
 * and as many that receive.
 *
 * Everything that differs between two runs comes from rnd(), except nonces, which nothing
 * depends on. End 0 has connected, end 1 has accepted; direction d goes from end d.
 */
#ifndef TESTS_SIM_SIM_H
#define TESTS_SIM_SIM_H

#include "ipoib_fallback/stream.h"

#include <errno.h>

#define SIM_FD      1000 /* end e's descriptor; what fb_io.keep gives is 1000 more */
#define SIM_BYTES   16384u
#define SIM_RAILS   24
#define SIM_RING    512u
#define SIM_CTL     64u
#define SIM_THREADS 2
#define SIM_STEPS   12500u /* before both applications finish, at most */

/* One direction of TCP: bytes numbered as the kernel counts them. */
struct sim_tcp {
    uint8_t byte[4096];
    uint64_t sent, moved, read; /* accepted by the kernel, arrived, taken */
    uint32_t sndbuf, rcvbuf;
    bool fin, fin_moved, rst, nospace;
};

struct sim_sock {
    int refs, err;
    bool gone; /* reset */
    bool abort, rdshut;
    struct rsk_watch *watch;
};

struct rsk_watch {
    int end;
    bool used, edge, dropped;
    uint32_t events;
    void (*fn)(void *, uint32_t);
    void *arg;
};

struct sim_rail {
    struct rsk_rail base;
    struct sim_rail *peer;
    int end;
    /* cut: nothing arrives any more, at either end; sees: this end will learn of it by itself,
     * else only when it has something outstanding, or through the anchor */
    bool there, destroyed, cut, sees, ends;
    _Atomic uint32_t words[2];
    unsigned armed, news;
    uint8_t staging[SIM_RING], ring[SIM_RING];
    uint64_t S, tx, posted, freed; /* sender */
    uint32_t most;                 /* it keeps no more than that */
    bool tx_started, open, stopped, echoed;
    uint64_t arrived, rx, told; /* receiver */
    bool rx_started, frozen;
    struct rsk_msg in[SIM_CTL]; /* from the peer: sent, of these arrived, of these taken */
    uint64_t ctl_sent, ctl_arrived, ctl_taken;
    uint64_t credit_sent, credit; /* at the sender: under way, arrived */
};

struct sim_job {
    void (*fn)(void *);
    void *arg;
    struct rsk_job *own; /* NULL: none */
};

struct rsk_timer {
    bool used;
    int end;
    uint64_t at;
    struct sim_job job;
};

/* One thread's send. */
struct sim_put {
    uint8_t bytes[600];
    size_t n, done;
    bool in_kernel, blocks; /* inside a plain kernel send */
};

/* One thread's receive. */
struct sim_get {
    uint8_t bytes[600];
    struct iovec v[2];
    int cnt, flags, stage; /* 1: inside the kernel's receive; 2: back, not yet left */
    bool blocks;
    ssize_t r;   /* what the kernel's receive gave */
    uint64_t at; /* the number of its first byte */
    uint64_t shown;
};

/* What the application of one end is doing. */
struct sim_app {
    uint8_t log[SIM_BYTES]; /* what it wrote, by offset */
    uint64_t offered, accepted, target;
    int threads; /* that send, and that receive: 1 or 2 */
    struct sim_put put[SIM_THREADS];
    uint8_t last_first;           /* first byte of what was offered last */
    bool again, changed;          /* the last send was EAGAIN; something else was sent after one */
    bool left;                    /* has handed over at least once */
    bool fin, stop, tx_end, told; /* told: an error was returned */
    bool closed, early, killed, pinned; /* early: closed without asking whether it was time */
    bool asked;                         /* a forked child wants the stream (rx_front.c) */
    uint64_t got, shown, got_at_close;
    struct sim_get get[SIM_THREADS];
    bool eof, rx_end;
    bool asleep, woken, tx_asleep, tx_woken, patient;
    struct fb_watcher watcher;
    struct fb_sleeper *sleeper; /* the first thread's, in the kernel's poll */
    uint32_t dead_writes;
};

struct sim_end {
    struct fb_conn *c;
    struct sim_sock sock;
    struct sim_app app;
    struct sim_job job[64];
    unsigned jobs, job_at;
    bool alive;
    int doom; /* 1 killed, 2 reset as soon as its sending half is between the tracks */
};

enum sim_step {
    STEP_SEND,
    STEP_RECV,
    STEP_JOB,
    STEP_WATCH,
    STEP_TIMER,
    STEP_TCP,
    STEP_WIRE,
    STEP_DRAIN,
    STEP_CLOCK,
    STEPS
};

struct sim {
    uint64_t seed, rng, now;
    uint32_t bound;    /* SO_SNDBUF, or 0 */
    unsigned no_watch; /* how often in 1000 the kernel has no watch for who asks */
    struct sim_end end[2];
    struct sim_tcp tcp[2];
    struct sim_rail rail[2 * SIM_RAILS];
    unsigned rails;
    struct rsk_timer timer[32];
    struct rsk_watch watch[2];
    bool outlives, rst_injected, draining;
    int inside; /* the end that has a thread inside a call that may wait in the library, or -1 */
    bool nested, on_loop;    /* on_loop: a progress thread runs, not an application's */
    unsigned steps, planned; /* planned: before both applications finish */
    unsigned weight[STEPS];
    unsigned refuse, peek, sizes; /* per thousand, per thousand, largest write */
    char why[300];
    bool failed, trace;
    uint64_t boarded, resumed, fronts; /* coverage, for the test's own check */
};

extern struct sim sim;

static inline uint64_t sim_next(void)
{
    uint64_t z = (sim.rng += 0x9e3779b97f4a7c15ull);

    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
    return z ^ (z >> 31);
}
static inline unsigned rnd(unsigned n) /* 0..n-1 */
{
    return (unsigned)(((sim_next() >> 32) * n) >> 32);
}
static inline bool chance(unsigned per_thousand)
{
    return rnd(1000) < per_thousand;
}

/* Notes the first thing that is wrong. */
__attribute__((format(printf, 1, 2))) void sim_fail(const char *fmt, ...);
__attribute__((format(printf, 1, 2))) void sim_trace(const char *fmt, ...);

/* ---- sim_tcp.c ---- */
extern const struct fb_io sim_io;
void sim_tcp_new(void);
ssize_t sim_tcp_recv(int fd, const struct iovec *v, int cnt, uint64_t limit, int flags);
ssize_t sim_tcp_send(int fd, const struct iovec *v, int cnt, int flags);
short sim_tcp_poll(int fd, short events);
/* Something of direction d arrives. False: nothing is under way. */
bool sim_tcp_move(int d);
void sim_tcp_close(int fd);
void sim_tcp_process_gone(int end);
void sim_tcp_reset(int end);

/* ---- sim_wire.c ---- */
/* Something that end sent arrives. False: nothing is under way. */
bool sim_wire_move(int end);
/* notify() of end's rail, as a drain does. */
bool sim_wire_drain(int end);
void sim_wire_fail(int first);
void sim_wire_process_gone(int end);
void sim_wire_check(void);
bool sim_wire_busy(void); /* messages are under way */

/* ---- sim_rdv.c ---- */
void sim_rdv_new(void);
int sim_rdv_usable(void);
int sim_rdv_listen(int family, uint16_t port, uint16_t peer, const struct rsk_accept_ops *ops);
int sim_rdv_connect(const struct rsk_tuple *t, struct rsk_shard *shard, size_t ring, void *owner,
                    void (*done)(void *, struct rsk_rail *, int));
/* The next step of a rendezvous. False: none is under way. */
bool sim_rdv_answer(void);
bool sim_rdv_busy(void);

/* ---- sim_loop.c ---- */
void sim_loop_new(void);
bool sim_loop_job(int end);
bool sim_loop_watch(int end);
bool sim_loop_timer(int end);
bool sim_loop_busy(void);           /* something of either progress thread's is under way */
uint64_t sim_loop_next_timer(void); /* 0: none */
void sim_edge(int end);
int sim_end_of(const void *arg);

/* ---- sim_send.c ---- */
bool sim_app_send(int end);
bool sim_sending(int end); /* a thread is inside a plain kernel send */

/* ---- sim_recv.c ---- */
bool sim_app_recv(int end);
bool sim_receiving(int end);   /* likewise a receive */
uint64_t sim_in_hand(int end); /* bytes that a thread has from the kernel and nobody counted yet */

/* ---- sim_app.c ---- */
void sim_app_new(int end);
/* May this end be told of an error? In TCP as well: the peer was killed, it closed without having
 * read everything, or something else sent RST. */
bool sim_error_is_right(int end);
void sim_app_shutdown(int end);
void sim_app_close(int end);
void sim_app_kill(int end);
void sim_app_pin(int end, bool wait);
/* If a forked child asks, or is about to, for the stream: its owner's progress thread looks at
 * that, and takes out unread bytes that cannot be left in TCP. False: nothing has come of it. */
bool sim_app_ask_step(int end);
void sim_app_unshow(int end);
bool sim_app_done(int end);
void sim_app_check(void);

/* ---- sim_run.c ---- */
/* What goes on while a thread of end waits inside the library; own: end's own
 * progress thread too. */
bool sim_background(int end, bool own);
/* Runs the schedule of one seed. True if all is well; else sim.why says what is not. Steps have
 * their random numbers from the seed and their own number, so that without some of them the others
 * do the same: those whose byte in `without` is not 0 are left out. NULL: none. */
bool sim_run(uint64_t seed, const uint8_t *without);

/* ---- sim_shrink.c ---- */
/* A schedule that fails: leaves out as many steps as can be. `without` has SIM_STEPS bytes. Returns
 * how many are left. */
unsigned sim_shrink(uint64_t seed, uint8_t *without);

#endif
