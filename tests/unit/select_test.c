/*
 * select_test.c - select, in the same way as poll_test.c; and no wake-up is lost, of poll or
 * select.
 */
#include "tests/asleep.h"
#include "tests/shim/shim.h"
#include "tests/unit/epoll_fake.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/select.h>
#include <sys/time.h>
#include <unistd.h>

#include "rsock/sys.h"

/* ---- select */

struct sets {
    fd_set r, w, x;
};

static struct sets sets_of(int r, int w, int x)
{
    struct sets s;

    FD_ZERO(&s.r);
    FD_ZERO(&s.w);
    FD_ZERO(&s.x);
    if (r >= 0)
        FD_SET(r, &s.r);
    if (w >= 0)
        FD_SET(w, &s.w);
    if (x >= 0)
        FD_SET(x, &s.x);
    return s;
}

TEST_CASE(select, rail)
{
    struct fake *f = fake_new();
    struct timeval tv = {1, 0};
    struct sets s;

    fake_board(f);
    s = sets_of(f->fd, f->fd, f->fd);
    EXPECT_EQ_INT(select(f->fd + 1, &s.r, &s.w, &s.x, &tv), 1);
    EXPECT(!FD_ISSET(f->fd, &s.r) && FD_ISSET(f->fd, &s.w) && !FD_ISSET(f->fd, &s.x));
    EXPECT(tv.tv_sec == 0 && tv.tv_usec > 0);
    fake_arrive(f, 1);
    s = sets_of(f->fd, f->fd, -1);
    EXPECT_EQ_INT(select(f->fd + 1, &s.r, &s.w, NULL, NULL), 2);
    EXPECT(FD_ISSET(f->fd, &s.r) && FD_ISSET(f->fd, &s.w));
    /* Below nfds only. */
    s = sets_of(f->fd, -1, -1);
    tv = (struct timeval){0, 0};
    EXPECT_EQ_INT(select(f->fd, &s.r, NULL, NULL, &tv), 0);
    fake_close(f);
}

TEST_CASE(select, time_is_kept_and_written_back)
{
    struct fake *f = fake_new();
    struct timeval tv = {0, 30000};
    struct timespec ts = {0, 30000000};
    struct sets s = sets_of(f->fd, -1, -1);
    uint64_t begin = sys_now();

    fake_board(f);
    EXPECT_EQ_INT(select(f->fd + 1, &s.r, NULL, NULL, &tv), 0);
    EXPECT(sys_now() - begin >= 30000000);
    EXPECT(!FD_ISSET(f->fd, &s.r));
    EXPECT(tv.tv_sec == 0 && tv.tv_usec == 0);
    s = sets_of(f->fd, -1, -1);
    EXPECT_EQ_INT(pselect(f->fd + 1, &s.r, NULL, NULL, &ts, NULL), 0);
    EXPECT_EQ_INT(ts.tv_nsec, 30000000);
    fake_close(f);
    /* No set at all: a way to sleep. */
    begin = sys_now();
    tv = (struct timeval){0, 10000};
    EXPECT_EQ_INT(select(0, NULL, NULL, NULL, &tv), 0);
    EXPECT(sys_now() - begin >= 10000000);
}

TEST_CASE(select, errors)
{
    struct fake *f = fake_new();
    struct timeval tv = {0, -1};
    struct sets s = sets_of(f->fd, 900, -1);

    fake_board(f);
    EXPECT_EQ_INT(select(901, &s.r, &s.w, NULL, NULL), -1);
    EXPECT_EQ_INT(errno, EBADF);
    EXPECT(FD_ISSET(f->fd, &s.r) && FD_ISSET(900, &s.w)); /* as they were */
    s = sets_of(f->fd, -1, -1);
    EXPECT_EQ_INT(select(f->fd + 1, &s.r, NULL, NULL, &tv), -1);
    EXPECT_EQ_INT(errno, EINVAL);
    EXPECT_EQ_INT(select(-1, &s.r, NULL, NULL, NULL), -1);
    EXPECT_EQ_INT(errno, EINVAL);
    fake_close(f);
}

struct chooser {
    pthread_t thread;
    struct fake *f;
    int n;
    bool set;
    _Atomic int tid;
    _Atomic bool done;
};

static void *choose_once(void *arg)
{
    struct chooser *c = arg;
    struct sets s = sets_of(c->f->fd, -1, -1);
    struct timeval tv = {5, 0};

    c->tid = gettid();
    c->n = select(c->f->fd + 1, &s.r, NULL, NULL, &tv);
    c->set = FD_ISSET(c->f->fd, &s.r);
    atomic_store(&c->done, true);
    return NULL;
}

/* It has said what it waits for, and sleeps in the kernel: again, if it was woken before. */
static void asleep(struct chooser *c)
{
    while (!atomic_load(&fake_sleepers))
        sys_yield();
    until_it_sleeps(&c->tid);
}

TEST_CASE(select, boards_while_a_thread_sleeps)
{
    for (int i = 0; i < 20; i++) {
        struct chooser c = {.f = fake_new()};

        pthread_create(&c.thread, NULL, choose_once, &c);
        if (i % 2)
            asleep(&c);
        fake_board(c.f);
        EXPECT_EQ_INT(write(c.f->peer, "frame", 5), 5);
        asleep(&c);
        EXPECT(!atomic_load(&c.done));
        fake_arrive(c.f, 1);
        pthread_join(c.thread, NULL);
        EXPECT_EQ_INT(c.n, 1);
        EXPECT(c.set);
        fake_close(c.f);
    }
}

/* ---- no lost wake-up */

struct reader {
    struct fake *f[2];
    _Atomic int got[2];
    _Atomic bool stop;
    bool by_select;
};

static void *reader(void *arg)
{
    struct reader *r = arg;

    while (!atomic_load(&r->stop)) {
        struct pollfd p[2] = {{.fd = r->f[0]->fd, .events = POLLIN},
                              {.fd = r->f[1]->fd, .events = POLLIN}};
        int most = p[0].fd > p[1].fd ? p[0].fd : p[1].fd;

        if (r->by_select) {
            struct sets s = sets_of(p[0].fd, -1, -1);
            struct timeval tv = {6, 0};

            FD_SET(p[1].fd, &s.r);
            select(most + 1, &s.r, NULL, NULL, &tv);
        } else {
            poll(p, 2, 6000);
        }
        for (int i = 0; i < 2; i++) {
            char c[16];
            ssize_t n;

            while ((n = fake_read(r->f[i], 100)) > 0 || (n = read(p[i].fd, c, sizeof c)) > 0)
                atomic_fetch_add(&r->got[i], (int)n);
        }
    }
    return NULL;
}

static void stress(bool by_select)
{
    static struct reader r;
    int sent[2] = {0}, lag = 0;
    unsigned seed = (unsigned)test_seed();
    uint64_t end = sys_now() + 700000000;
    pthread_t t;

    memset(&r, 0, sizeof r);
    r.by_select = by_select;
    for (int i = 0; i < 2; i++)
        r.f[i] = fake_new();
    pthread_create(&t, NULL, reader, &r);
    while (sys_now() < end && lag < 3) {
        int i = (int)(rand_r(&seed) % 2);
        uint64_t limit = sys_now() + 3000000000; /* less than their time-out */

        if (rand_r(&seed) % 8 == 0) {
            if (fb_plain(&r.f[i]->s)) {
                fake_board(r.f[i]);
                /* The switch frame, which the engine leaves until sleepers have seen it. */
                EXPECT_EQ_INT(write(r.f[i]->peer, "f", 1), 1);
                sent[i]++;
            } else {
                fake_leave(r.f[i]);
            }
        }
        if (!fb_plain(&r.f[i]->s))
            fake_arrive(r.f[i], 1);
        else
            EXPECT_EQ_INT(write(r.f[i]->peer, "x", 1), 1);
        sent[i]++;
        while (atomic_load(&r.got[i]) < sent[i] && sys_now() < limit)
            sys_yield();
        if (!EXPECT_EQ_INT(atomic_load(&r.got[i]), sent[i]))
            lag++;
    }
    atomic_store(&r.stop, true);
    if (fb_plain(&r.f[0]->s))
        EXPECT_EQ_INT(write(r.f[0]->peer, "x", 1), 1);
    else
        fake_arrive(r.f[0], 1);
    pthread_join(t, NULL);
    for (int i = 0; i < 2; i++)
        fake_close(r.f[i]);
}

TEST_CASE(poll, stress)
{
    stress(false);
}

TEST_CASE(select, stress)
{
    stress(true);
}
