/*
 * shard_test.c - shards under threads: nobody sleeps through news, a rail that leaves is
 * left alone, an added part is armed.
 */
#include "tests/unit/shard_bell.h"

#include <pthread.h>

#include "tests/asleep.h"

static int asked;

static bool ask(void *arg, int fd)
{
    asked++;
    return *(int *)arg == -1 && fd != bell_fd;
}

/* Each of its descriptors, as long as somebody is told of them. */
TEST_CASE(shard, each_descriptor)
{
    int none = -1;
    struct rsk_shard *s = rsk_shard_new(fd_added, &none);

    ASSERT(s != NULL);
    EXPECT(rsk_shard_each(s, ask));
    EXPECT_EQ_INT(asked, 0);
    EXPECT(bell_for(s, 1) && bell_for(s, 2));
    /* the last one refuses, and the others are asked all the same */
    EXPECT(!rsk_shard_each(s, ask));
    EXPECT_EQ_INT(asked, 4);
    bell_fd = -1;
    EXPECT(rsk_shard_each(s, ask));
    EXPECT_EQ_INT(asked, 8);
    rsk_shard_orphan(s);
    EXPECT(rsk_shard_each(s, ask));
    EXPECT_EQ_INT(asked, 8);
    rsk_shard_put(s);
}

TEST_CASE(shard, one_bell_for_each_uid)
{
    const uint64_t others = 1ull << 33; /* of the key */
    int none = -1;
    struct rsk_shard *s = rsk_shard_new(fd_added, &none);
    struct shm_bell *a, *b;

    ASSERT(s != NULL);
    a = bell_for(s, 1);
    b = bell_for(s, 2);
    EXPECT(a && b && a != b && bell_for(s, 1) == a);
    EXPECT(rsk_shard_find(s, &rsk_shm_wire, others | 2) == (struct rsk_shard_part *)b);
    EXPECT(rsk_shard_find(s, &rsk_shm_wire, others | 3) == NULL);
    EXPECT(rsk_shard_find(s, &rsk_verbs_wire, others | 2) == NULL);
    rsk_shard_orphan(s);
    bell_fd = -1;
    EXPECT(bell_for(s, 3) != NULL);
    EXPECT_EQ_INT(bell_fd, -1);
    rsk_shard_put(s);
}

TEST_CASE(shard, news_reaches_the_right_slot)
{
    int none = -1;
    struct rsk_shard *s = rsk_shard_new(fd_added, &none);
    struct shm_bell *b = bell_for(s, 0);
    int slot = -1;

    ASSERT(b != NULL);
    for (int i = 0; i < 200; i++)
        slot = shm_bell_reserve(b);
    EXPECT_EQ_INT(slot, 199);
    EXPECT_EQ_INT(rsk_shard_drain(s), 0);
    EXPECT_EQ_INT(shm_bell_set(b, 199, &fake), 0);
    shm_bell_ring(b, 199);
    shm_bell_ring(b, 198); /* nobody's: ignored */
    shm_bell_ring(b, 4095);
    notified = 0;
    EXPECT_EQ_INT(rsk_shard_drain(s), 1);
    EXPECT_EQ_INT(rsk_shard_drain(s), 0);
    EXPECT_EQ_INT(notified, 1);
    shm_bell_ring(b, 199);
    shm_bell_release(b, 199);
    EXPECT_EQ_INT(rsk_shard_drain(s), 0);
    EXPECT_EQ_INT(shm_bell_reserve(b), 199);
    rsk_shard_put(s);
}

/* Holds up whoever drains, until somebody is about to drain, and a while longer. */
static _Atomic bool held_up, due;

static void slow_notify(struct rsk_rail *r, unsigned events)
{
    (void)r, (void)events;
    atomic_store(&held_up, true);
    while (!atomic_load(&due))
        sys_yield();
    for (int i = 0; i < 10000; i++)
        sys_yield();
}

static struct rsk_rail slow = {.wire = &fake_wire, .notify = slow_notify};

static void *drain_once(void *shard)
{
    rsk_shard_drain(shard);
    return NULL;
}

TEST_CASE(shard, news_behind_a_drain_is_told_by_drain_all)
{
    int none = -1;
    struct rsk_shard *s = rsk_shard_new(fd_added, &none);
    struct shm_bell *b = bell_for(s, 0);
    pthread_t t;

    /* In different words of the page: the one is looked at before the other. */
    for (int i = 0; i < 200; i++)
        shm_bell_reserve(b);
    shm_bell_set(b, 0, &fake);
    shm_bell_set(b, 199, &slow);
    shm_bell_ring(b, 199);
    notified = 0;
    ASSERT_EQ_INT(pthread_create(&t, NULL, drain_once, s), 0);
    while (!atomic_load(&held_up))
        sys_yield();
    EXPECT_EQ_INT(rsk_shard_drain(s), -1); /* nothing is set, and what was has not been told yet */
    shm_bell_ring(b, 0);
    EXPECT_EQ_INT(rsk_shard_drain(s), -1);
    EXPECT(rsk_shard_arm(s));
    atomic_store(&due, true);
    EXPECT_EQ_INT(rsk_shard_drain_all(s), 1);
    EXPECT_EQ_INT(notified, 1);
    rsk_shard_disarm(s);
    pthread_join(t, NULL);
    rsk_shard_put(s);
}

TEST_CASE(shard, the_descriptor_fires_once_and_only_when_armed)
{
    int ep = sys_epoll_create1(EPOLL_CLOEXEC);
    struct rsk_shard *s = rsk_shard_new(fd_added, &ep);
    struct shm_bell *b = bell_for(s, 0);
    struct epoll_event ev;
    int slot = shm_bell_reserve(b);

    shm_bell_set(b, (uint32_t)slot, &fake);
    shm_bell_ring(b, (uint32_t)slot);
    EXPECT_EQ_INT(sys_epoll_wait(ep, &ev, 1, 0), 0);
    EXPECT(rsk_shard_arm(s)); /* there is news already */
    rsk_shard_disarm(s);
    rsk_shard_drain(s);
    EXPECT(!rsk_shard_arm(s));
    EXPECT(!rsk_shard_arm(s)); /* two sleepers */
    rsk_shard_disarm(s);       /* one of them goes: still armed */
    shm_bell_ring(b, (uint32_t)slot);
    EXPECT_EQ_INT(sys_epoll_wait(ep, &ev, 1, 0), 1);
    shm_bell_ring(b, (uint32_t)slot);
    EXPECT_EQ_INT(sys_epoll_wait(ep, &ev, 1, 0), 0);
    rsk_shard_disarm(s);
    rsk_shard_drain(s);
    /* A part that comes while somebody sleeps is armed. */
    EXPECT(!rsk_shard_arm(s));
    b = bell_for(s, 77);
    shm_bell_ring(b, 0);
    EXPECT_EQ_INT(sys_epoll_wait(ep, &ev, 1, 0), 1);
    rsk_shard_disarm(s);
    rsk_shard_put(s);
    sys_close(ep);
}

/* ---- stress */

enum { ROUNDS = 20000 };

struct stress {
    struct rsk_shard *s;
    struct shm_bell *b;
    uint32_t slot;
    struct shm_peer_bell *peer; /* who rings, or NULL: ourselves */
    _Atomic bool over;
    _Atomic int asleep; /* who has not seen the end yet */
};

static void ring_it(struct stress *t)
{
    if (t->peer)
        shm_peer_ring(t->peer, t->slot);
    else
        shm_bell_ring(t->b, t->slot);
}

static void *ringer(void *arg)
{
    struct stress *t = arg;

    for (int i = 0; i < ROUNDS; i++) {
        uint64_t until = sys_now() + 30000000000u;

        atomic_store(&news, 1);
        ring_it(t);
        while (atomic_load(&news)) {
            if (sys_now() > until) {
                FAILF("round %d: nobody came", i);
                i = ROUNDS;
                break;
            }
            sys_yield();
        }
    }
    atomic_store(&t->over, true);
    /* All sleepers must see the end. */
    while (atomic_load(&t->asleep) > 0) {
        ring_it(t);
        sys_yield();
    }
    return NULL;
}

static void *sleeper(void *arg)
{
    struct stress *t = arg;
    int ep = sys_epoll_create1(EPOLL_CLOEXEC);
    struct epoll_event ev = {.events = EPOLLIN | EPOLLET};

    sys_epoll_ctl(ep, EPOLL_CTL_ADD, bell_fd, &ev);
    while (!atomic_load(&t->over)) {
        rsk_shard_drain(t->s);
        if (!rsk_shard_arm(t->s))
            sys_epoll_wait(ep, &ev, 1, 1000);
        rsk_shard_disarm(t->s);
    }
    atomic_fetch_sub(&t->asleep, 1);
    sys_close(ep);
    return NULL;
}

static void stress(struct stress *t, int sleepers)
{
    pthread_t th[4], r;

    t->asleep = sleepers;
    for (int i = 0; i < sleepers; i++)
        pthread_create(&th[i], NULL, sleeper, t);
    pthread_create(&r, NULL, ringer, t);
    pthread_join(r, NULL);
    for (int i = 0; i < sleepers; i++)
        pthread_join(th[i], NULL);
}

static void stress_own(int sleepers)
{
    int none = -1;
    struct stress t = {.s = rsk_shard_new(fd_added, &none)};

    t.b = bell_for(t.s, 0);
    t.slot = (uint32_t)shm_bell_reserve(t.b);
    shm_bell_set(t.b, t.slot, &fake);
    stress(&t, sleepers);
    rsk_shard_put(t.s);
}

TEST_CASE(shard, one_sleeper_misses_nothing)
{
    stress_own(1);
}

TEST_CASE(shard, two_sleepers_miss_nothing)
{
    stress_own(2);
}

TEST_CASE(shard, two_sleepers_miss_nothing_of_another_user)
{
    struct stress t = {0};
    struct foreign f;
    int none = -1;

    foreign_bell(&f, &none);
    t.s = f.s, t.b = f.b, t.slot = f.slot, t.peer = f.peer;
    stress(&t, 2);
    foreign_put(&f);
}

/* ---- who is stopped on his way to wake */

struct waker {
    struct shm_peer_bell *peer;
    uint32_t slot;
    _Atomic int tid;
};

static void *wakes(void *arg)
{
    struct waker *w = arg;

    atomic_store(&w->tid, sys_gettid());
    shm_peer_ring(w->peer, w->slot);
    return NULL;
}

/* The descriptor is full and blocks, so that whoever writes to it stands there: as if stopped by a
 * signal or a debugger. */
static pthread_t stuck(struct waker *w)
{
    uint64_t until = sys_now() + 30000000000u;
    pthread_t t;

    atomic_store(&w->tid, 0);
    pthread_create(&t, NULL, wakes, w);
    while (!atomic_load(&w->tid) || state_of(atomic_load(&w->tid)) != 'S') {
        if (atomic_load(&w->tid) && state_of(atomic_load(&w->tid)) == '?')
            break; /* it has not written at all */
        if (sys_now() > until) {
            FAILF("neither asleep nor gone");
            break;
        }
        sys_yield();
    }
    return t;
}

/* Processes of one user write to one bell. One that is stopped before its write keeps nobody else's
 * news from the sleeper; and when it goes on it does not clear what the sleeper has armed since. */
TEST_CASE(shard, a_stopped_waker_stops_nobody_else)
{
    const uint64_t most = UINT64_MAX - 1;
    int none = -1, page, event;
    struct rsk_shard *s = rsk_shard_new(fd_added, &none);
    struct shm_bell *b = bell_for(s, 0);
    struct waker w = {.slot = (uint32_t)shm_bell_reserve(b)};
    pthread_t first, second;
    uint64_t count = 0;

    shm_bell_set(b, w.slot, &fake);
    shm_bell_fds(b, &page, &event);
    ASSERT_EQ_INT(shm_peer_bell_get(sys_hide_fd(dup(page)), sys_hide_fd(dup(event)),
                                    &(struct shm_cred){geteuid(), (uint32_t)getpid(),
                                                       .trusted = true, .alike = true},
                                    &w.peer),
                  0);
    ASSERT_EQ_INT(write(event, &most, sizeof most), sizeof most);
    ASSERT_EQ_INT(fcntl(event, F_SETFL, 0), 0);
    EXPECT(!rsk_shard_arm(s));
    first = stuck(&w);
    second = stuck(&w);
    /* Woken by the second, say, the sleeper finds the news, and sleeps again. */
    rsk_shard_disarm(s);
    EXPECT_EQ_INT(rsk_shard_drain(s), 1);
    EXPECT(!rsk_shard_arm(s));
    ASSERT_EQ_INT(read(event, &count, sizeof count), sizeof count);
    pthread_join(first, NULL);
    pthread_join(second, NULL);
    shm_peer_ring(w.peer, w.slot);
    shm_peer_ring(w.peer, w.slot); /* nobody sleeps any more: no write */
    ASSERT_EQ_INT(fcntl(event, F_SETFL, O_NONBLOCK), 0);
    ASSERT_EQ_INT(read(event, &count, sizeof count), sizeof count);
    EXPECT_EQ_INT(count, 3);
    rsk_shard_disarm(s);
    shm_peer_bell_put(w.peer);
    rsk_shard_put(s);
}

/* ---- leaving while others drain */

static void *drainer(void *arg)
{
    struct stress *t = arg;

    while (!atomic_load(&t->over)) {
        shm_bell_ring(t->b, t->slot);
        rsk_shard_drain(t->s);
    }
    return NULL;
}

TEST_CASE(shard, no_notify_after_release)
{
    int none = -1;
    struct stress t = {.s = rsk_shard_new(fd_added, &none)};
    pthread_t th[2];

    t.b = bell_for(t.s, 0);
    t.slot = (uint32_t)shm_bell_reserve(t.b);
    for (int i = 0; i < 2; i++)
        pthread_create(&th[i], NULL, drainer, &t);
    for (int i = 0; i < 2000; i++) {
        struct rsk_rail *r = malloc(sizeof *r);

        *r = fake;
        shm_bell_set(t.b, t.slot, r);
        if (i % 16 == 0)
            sys_yield();
        shm_bell_release(t.b, t.slot);
        free(r); /* the address sanitizer watches */
        shm_bell_reserve(t.b);
    }
    atomic_store(&t.over, true);
    for (int i = 0; i < 2; i++)
        pthread_join(th[i], NULL);
    rsk_shard_put(t.s);
}

static void is_lonely(void *arg)
{
    ++*(int *)arg;
}

TEST_CASE(shard, tells_who_is_left_alone)
{
    int none = -1, told = 0;
    struct rsk_shard *s = rsk_shard_new(fd_added, &none);

    ASSERT(s != NULL);
    rsk_shard_get(s); /* an instance's */
    rsk_shard_get(s); /* a rail's */
    rsk_shard_on_lonely(s, is_lonely, &told);
    rsk_shard_put(s);
    EXPECT_EQ_INT(told, 0);
    rsk_shard_put(s);
    EXPECT_EQ_INT(told, 1);
    rsk_shard_put(s);
    EXPECT_EQ_INT(told, 1);
}
