/*
 * stream_pair.h - two tracked ends of a real TCP connection over loopback, driven through fb.h as
 * the intercepting layer does, with the real progress thread and the real shared-memory wire. Every
 * byte is a function of its offset.
 */
#ifndef TESTS_UNIT_STREAM_PAIR_H
#define TESTS_UNIT_STREAM_PAIR_H

#include "tests/calls.h"
#include "tests/shim/shim.h"

#include "config/env.h"
#include "ipoib_fallback/fb.h"
#include "ipoib_fallback/stream.h"
#include "rsock/loop.h"
#include "rsock/sys.h"

#include <netinet/in.h>
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define PATIENCE 60000000000u /* ns, which no machine needs */

static inline void job_over(void *over)
{
    sem_post(over);
}

/* Everything that the progress thread has been asked for up to here is done. */
static inline void jobs_done(void)
{
    sem_t over;

    sem_init(&over, 0, 0);
    ASSERT_EQ_INT(rsk_loop_post(job_over, &over), 0);
    while (sem_wait(&over))
        ;
}

/* What somebody waits for comes about on the progress thread, or on one that this one's
 * waiting lets run. */
static inline void wait_for_news(void)
{
    if (rsk_loop_running())
        jobs_done();
    else
        sched_yield();
}

/* Looks again, whenever there may be news, until it holds; the case ends if it never does. */
#define UNTIL(cond)                               \
    do {                                          \
        uint64_t limit_ = sys_now() + PATIENCE;   \
        while (!(cond)) {                         \
            if (sys_now() > limit_)               \
                ASSERT(!"comes to hold: " #cond); \
            wait_for_news();                      \
        }                                         \
    } while (0)

/* run in a process of its own. Its status, as of waitpid. */
static inline int in_a_child(void (*run)(void))
{
    pid_t pid = fork();
    int status = -1;

    ASSERT(pid >= 0);
    if (pid == 0) {
        run();
        _exit(0);
    }
    ASSERT(waitpid(pid, &status, 0) == pid);
    return status;
}

struct held {
    sem_t there, go;
};

static inline void hold_up(void *arg)
{
    struct held *h = arg;

    sem_post(&h->there);
    while (sem_wait(&h->go))
        ;
}

/* The thread that watches sockets does nothing until it is let go: nobody may wait for its
 * jobs meanwhile. */
static inline void hold(struct held *h)
{
    sem_init(&h->there, 0, 0);
    sem_init(&h->go, 0, 0);
    ASSERT_EQ_INT(rsk_loop_post(hold_up, h), 0);
    while (sem_wait(&h->there))
        ;
}

/* It has done with h when this returns. */
static inline void let_go(struct held *h)
{
    sem_post(&h->go);
    jobs_done();
}

struct end {
    int fd;
    struct fb_stream *s;
};

static inline int pair_listener(void)
{
    struct sockaddr_in sin = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int l = socket(AF_INET, SOCK_STREAM, 0);

    (void)bind(l, (struct sockaddr *)&sin, sizeof(sin));
    listen(l, 1);
    return l;
}

static inline void pair_at(int l, struct end *a, struct end *b)
{
    struct sockaddr_in sin;
    socklen_t len = sizeof(sin);

    getsockname(l, (struct sockaddr *)&sin, &len);
    a->fd = socket(AF_INET, SOCK_STREAM, 0);
    (void)connect(a->fd, (struct sockaddr *)&sin, sizeof(sin));
    b->fd = accept(l, NULL, NULL);
    a->s = fb_track(a->fd, FB_CONNECTED, 0);
    b->s = fb_track(b->fd, FB_ACCEPTED, 0);
}

static inline void pair(struct end *a, struct end *b)
{
    int l = pair_listener();

    pair_at(l, a, b);
    close(l);
}

/* As a process with no rules: streams board after so many calls, the first of which ask nothing. */
static inline void after(struct end *e, struct cfg_stream *set, uint32_t calls)
{
    struct fb_conn *c = conn_of(e->s);

    *set = *c->set;
    set->board_calls = calls;
    conn_addresses(c); /* which finds its rule */
    c->set = set;
    e->s->tx_mark = e->s->rx_mark = FB_DIGEST_LATER;
    e->s->look_at = calls / 2;
}

/* Its rail is used through that wire from now on: under the locks under which others use it. */
static inline void use_wire(struct end *e, const struct rsk_wire *wire)
{
    struct fb_more *x = conn_of(e->s)->x;

    fb_lock(&x->tx.lock);
    fb_lock(&x->rx.lock);
    fb_lock(&x->ctl_lock);
    x->rail->wire = wire;
    fb_unlock(&x->ctl_lock);
    rx_unlock(conn_of(e->s));
    tx_unlock(conn_of(e->s));
}

static inline ssize_t put(struct end *e, const void *p, size_t n)
{
    return call_send(e->s, e->fd, p, n);
}

static inline ssize_t get(struct end *e, void *p, size_t n)
{
    return call_recv(e->s, e->fd, p, n);
}

static inline void done(struct end *e)
{
    fb_close(e->s, e->fd);
    close(e->fd);
    fb_put(e->s);
}

/* Who watches threads is told of a whole range at once, and not of each byte, which takes three
 * times as long. */
#ifdef __SANITIZE_THREAD__
void range_read(const void *p, size_t n) __asm__("__tsan_read_range");
void range_written(void *p, size_t n) __asm__("__tsan_write_range");
#define AT_ONCE __attribute__((no_sanitize("thread")))
#else
#define range_read(p, n)    ((void)0)
#define range_written(p, n) ((void)0)
#define AT_ONCE
#endif

AT_ONCE static inline void fill(unsigned char *p, uint64_t from, size_t n)
{
    range_written(p, n);
    for (size_t i = 0; i < n; i++)
        p[i] = byte_at(from + i);
}

AT_ONCE static inline bool check(const unsigned char *p, uint64_t from, size_t n)
{
    range_read(p, n);
    for (size_t i = 0; i < n; i++)
        if (p[i] != byte_at(from + i))
            return false;
    return true;
}

static pid_t pair_process;

static inline void count_one(struct fb_conn *c, void *n)
{
    (void)c;
    ++*(int *)n;
}

/* At exit: the progress thread may still have to give up what the last case has closed, which
 * otherwise looks like a leak. (A child has not got these streams.) */
static inline void all_gone(void)
{
    uint64_t limit = sys_now() + 5000000000u;

    for (int n = 1; n && sys_now() < limit && getpid() == pair_process;) {
        n = 0;
        conn_each(count_one, &n);
        if (n)
            wait_for_news();
    }
}

static inline void eager(void)
{
    static bool done_once; /* the progress thread reads what cfg_init writes */

    if (done_once)
        return;
    done_once = true;
    pair_process = getpid();
    atexit(all_gone);
    setenv("RAILSOCK_BOARD", "eager", 1);
    cfg_init();
}

/* Is a rail there at both ends? One may have asked before the other could answer; without a call it
 * does so once more, and then not again. */
static inline bool proved(struct end *a, struct end *b)
{
    char byte = 'x';

    if (!conn_flag(conn_of(a->s), CF_ASKED) || !conn_flag(conn_of(b->s), CF_ASKED)) {
        EXPECT_EQ_INT(put(a, &byte, 1), 1);
        EXPECT_EQ_INT(get(b, &byte, 1), 1);
        EXPECT_EQ_INT(put(b, &byte, 1), 1);
        EXPECT_EQ_INT(get(a, &byte, 1), 1);
    }
    return conn_flag(conn_of(a->s), CF_PROVED) && conn_flag(conn_of(b->s), CF_PROVED);
}

/* A pair that has a rail, and is on TCP: it has said 32 bytes each way before that was there. */
static inline void pair_proved(struct end *a, struct end *b)
{
    unsigned char bytes[32] = {0};

    eager();
    pair(a, b);
    ASSERT_EQ_INT(put(b, bytes, 32), 32);
    ASSERT_EQ_INT(get(a, bytes, 32), 32);
    ASSERT_EQ_INT(put(a, bytes, 32), 32);
    ASSERT_EQ_INT(get(b, bytes, 32), 32);
    UNTIL(proved(a, b));
}

struct echo {
    struct end e;
    uint64_t bytes;
    bool good;
};

static inline void *echo_main(void *arg)
{
    struct echo *x = arg;
    unsigned char buf[70000];

    x->good = true;
    for (;;) {
        ssize_t n = get(&x->e, buf, sizeof(buf)), m = 0;

        if (n <= 0) {
            x->good = x->good && n == 0;
            break;
        }
        x->good = x->good && check(buf, x->bytes, (size_t)n);
        x->bytes += (uint64_t)n;
        while (m < n) {
            ssize_t r = put(&x->e, buf + m, (size_t)(n - m));
            if (r < 0) {
                x->good = false;
                goto out;
            }
            m += r;
        }
    }
out:
    done(&x->e);
    return NULL;
}

static inline bool round_trip(struct end *e, uint64_t *pos, size_t n)
{
    static unsigned char out[70000], in[70000];
    size_t have = 0, sent = 0;

    fill(out, *pos, n);
    while (sent < n) {
        ssize_t r = put(e, out + sent, n - sent);

        if (r < 0)
            return false;
        sent += (size_t)r;
    }
    while (have < n) {
        ssize_t r = get(e, in + have, n - have);

        if (r <= 0)
            return false;
        have += (size_t)r;
    }
    *pos += n;
    return memcmp(in, out, n) == 0;
}

/* Both directions, as this end sees it. */
static inline bool boarded(struct end *e)
{
    return e->s->pub->path_tx == FB_PATH_SHM && e->s->pub->path_rx == FB_PATH_SHM;
}

/* What calls have begun on the progress thread goes on there for some of its rounds, before the
 * next calls: so a few of them, and few bytes, get a rail. */
enum { ROUNDS_A_CALL = 32 };

static inline void let_go_on(unsigned rounds)
{
    while (rounds--)
        wait_for_news();
}

/* Boards a.. with a few round trips; true when both directions are on the rail. */
static inline bool board(struct end *a, struct end *b)
{
    uint64_t limit = sys_now() + PATIENCE;
    unsigned char buf[32] = {0};

    while (sys_now() < limit) {
        if (put(a, buf, 32) != 32 || get(b, buf, 32) != 32 || put(b, buf, 32) != 32 ||
            get(a, buf, 32) != 32)
            return false;
        if (boarded(a) && boarded(b))
            return true;
        let_go_on(ROUNDS_A_CALL);
    }
    return false;
}

/* The same of an end whose peer is an echo. */
static inline bool board_echo(struct end *e, uint64_t *pos)
{
    uint64_t limit = sys_now() + PATIENCE;

    while (!boarded(e)) {
        if (sys_now() > limit || !round_trip(e, pos, 1 + (size_t)*pos % 97))
            return false;
        wait_for_news();
    }
    return true;
}

/* A pair of which the other end is x's thread t, an echo with a reference of its own, boarded. */
static inline bool echo_boarded(struct end *e, struct echo *x, pthread_t *t, uint64_t *pos)
{
    eager();
    pair(e, &x->e);
    fb_get(x->e.s);
    pthread_create(t, NULL, echo_main, x);
    return board_echo(e, pos);
}

struct reader {
    struct end *e;
    ssize_t n;
    _Atomic bool done;
    unsigned char buf[8192];
};

static inline void *reader_main(void *arg)
{
    struct reader *r = arg;

    r->n = get(r->e, r->buf, sizeof(r->buf));
    r->done = true;
    return NULL;
}

/* It has found nothing, and sleeps. */
static inline void until_it_waits(struct reader *r)
{
    while (!conn_of(r->e->s)->x->rx_waiters && !conn_of(r->e->s)->x->peekers && !r->done)
        sched_yield();
}

/* For a call that must come back: a test that would hang ends instead. */
static inline bool comes_back(struct reader *r, pthread_t t)
{
    struct timespec limit;

    clock_gettime(CLOCK_REALTIME, &limit);
    limit.tv_sec += (time_t)(PATIENCE / 1000000000u);
    if (pthread_timedjoin_np(t, NULL, &limit)) {
        FAILF("the reader does not come back");
        _exit(1);
    }
    return EXPECT(r->done);
}

#endif
