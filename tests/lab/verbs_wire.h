/*
 * verbs_wire.h - the parts of verbs_wire_test: this program's calls on a rail (verbs_wire_calls.c),
 * the cases (verbs_wire_cases.c, verbs_wire_end.c), adapters for them (verbs_wire_strict.c,
 * verbs_wire_lazy.c), and the two programs that go through them (verbs_wire_test.c).
 */
#ifndef TESTS_LAB_VERBS_WIRE_H
#define TESTS_LAB_VERBS_WIRE_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "rsock/shard.h"
#include "rsock/wire.h"

/* Much longer than anything takes: the machine below may have other things to do. */
enum { PATIENCE_S = 20 };

static const struct rsk_wire *const wire = &rsk_verbs_wire;

struct conn {
    int fd;
    bool server, spin, brief, slow, unwanted;
    struct rsk_tuple tuple;
    struct rsk_rail *_Atomic rail;
    _Atomic int refused;
    _Atomic unsigned news;
    _Atomic bool failed, push_posted;
    struct rsk_shard *shard;
    size_t ring;
    pthread_mutex_t tx_lock, rx_lock;
    uint64_t tx, rx;
    unsigned seed;
    char why[200];
};

/* ---- verbs_wire_calls.c */

extern char pattern[2 * 65521];
extern struct conn *_Atomic waiting; /* the server's connection that may have a rail */
extern _Atomic int answer_not_yet;
extern const struct rsk_accept_ops ops;

/* Keeps the first of the connection's failures. -1. */
int wrong(struct conn *c, const char *fmt, ...);
bool same(const char *a, const char *b);
void nap(unsigned us);
unsigned rnd(struct conn *c, unsigned n);
/* For rsk_wire.connect. */
void on_done(void *owner, struct rsk_rail *r, int reason);
int send_all(struct conn *c, size_t n);
/* Takes what is there, at most max; checks it. */
ssize_t recv_some(struct conn *c, size_t max);
int recv_all(struct conn *c, size_t n);
int ctl_wait(struct conn *c, struct rsk_msg *m);
int ctl_put(struct conn *c, const struct rsk_msg *m);
/* Both are ready to receive before either may send. */
int rail_start(struct conn *c, uint32_t limit, uint64_t tx, uint64_t rx);

/* ---- verbs_wire_end.c */

/* Its client says something last, and ends the rail. */
int last_words(struct conn *c);

/* ---- verbs_wire_cases.c */

/* The rail is up on both sides: this side's part. */
int run_case(struct conn *c, const char *name);
/* The shard, the ring and the seed that the case wants. */
void choose(struct conn *c, const char *name);

/* ---- verbs_wire_strict.c */

/* Once the wire is usable: its adapters are strict from now on. */
void be_strict(void);
/* Says so, if it is so. 0, or a failure. */
int was_strict(void);

/* ---- verbs_wire_lazy.c */

/* From the next rail on what is posted is sent some milliseconds later, if its queue pair
 * is still well. */
void be_lazy(void);

/* ---- verbs_wire_test.c */

void end_on_loop(struct conn *c);
bool read_line(int fd, char *line, size_t size);

#endif
