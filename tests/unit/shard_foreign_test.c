/*
 * shard_foreign_test.c - bells for peers of other users: how many there may be, and what goes
 * through their sockets.
 */
#include "tests/unit/shard_bell.h"

/* Whoever has the numbers of many users does not get all descriptors, and takes no bell from
 * whom we trust. */
TEST_CASE(shard, bells_for_many_users)
{
    int none = -1;
    struct rsk_shard *s = rsk_shard_new(fd_added, &none);
    struct rlimit was, few = {.rlim_cur = 512 + 2 * 80};
    uint32_t n = 1;

    ASSERT(s != NULL);
    prlimit(0, RLIMIT_NOFILE, NULL, &was);
    few.rlim_max = was.rlim_max;
    ASSERT_EQ_INT(setrlimit(RLIMIT_NOFILE, &few), 0);
    while (n < 100 && bell_for(s, n))
        n++;
    EXPECT_EQ_INT(n - 1, 10); /* half of 80, and each has four */
    EXPECT(bell_for(s, 1) && bell_for(s, 0));
    rsk_shard_put(s);
    s = rsk_shard_new(fd_added, &none);
    EXPECT(s && bell_for(s, 100) != NULL); /* those have been given back */
    rsk_shard_put(s);
    setrlimit(RLIMIT_NOFILE, &was);
}

/* One wish to be woken, one ring, its edge. The bytes in the socket after it. */
static int ring_once(struct foreign *f, int ep)
{
    struct epoll_event ev;
    int bytes = -1;

    EXPECT(!rsk_shard_arm(f->s));
    shm_peer_ring(f->peer, f->slot);
    EXPECT_EQ_INT(epoll_wait(ep, &ev, 1, 0), 1);
    EXPECT_EQ_INT(epoll_wait(ep, &ev, 1, 0), 0);
    EXPECT_EQ_INT(rsk_shard_drain(f->s), 1);
    EXPECT_EQ_INT(ioctl(bell_fd, FIONREAD, &bytes), 0);
    rsk_shard_disarm(f->s);
    return bytes;
}

/* Each wish to be woken has its edge, more often than what the socket holds, and the bytes in it
 * stay few, and never none. */
TEST_CASE(shard, bell_of_another_user)
{
    enum { TIMES = 3000 };
    int ep = sys_epoll_create1(0);
    struct foreign f;

    foreign_bell(&f, &ep);
    for (int i = 0; i < TIMES; i++) {
        int bytes = ring_once(&f, ep);

        ASSERT(bytes > 0 && bytes < 100);
    }
    /* Filled by somebody, and its sends made to block: nobody waits, and the bytes are
     * taken out again. */
    while (send(f.event, "", 1, MSG_DONTWAIT) > 0)
        ;
    ASSERT_EQ_INT(fcntl(f.event, F_SETFL, 0), 0);
    for (int i = 0; i < TIMES; i++) {
        (void)rsk_shard_arm(f.s);
        shm_peer_ring(f.peer, f.slot);
        ASSERT_EQ_INT(rsk_shard_drain(f.s), 1);
        rsk_shard_disarm(f.s);
    }
    foreign_put(&f);
    sys_close(ep);
}

/* Whenever bytes are taken out, `late` more are counted and not sent yet: none is forgotten, or the
 * socket is full of them in the end. */
static void late_bytes(int late)
{
    enum { TIMES = 200, SENT = 1 /* the page's word for them */ };
    int ep = sys_epoll_create1(0);
    struct epoll_event ev;
    struct foreign f;
    _Atomic uint32_t *page;

    foreign_bell(&f, &ep);
    page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, f.page, 0);
    ASSERT(page != MAP_FAILED);
    for (int i = 0; i < TIMES; i++) {
        atomic_fetch_add(&page[SENT], (uint32_t)late);
        for (int j = 0; j < 70; j++) {
            int bytes = ring_once(&f, ep);

            ASSERT(bytes < 64); /* one less each time, were one forgotten */
            /* Nobody who was woken finds it empty, but with very many on their way. */
            ASSERT(bytes > 0 || late > 30);
        }
        for (int j = 0; j < late; j++)
            ASSERT_EQ_INT(send(f.event, "", 1, MSG_DONTWAIT), 1);
        ASSERT_EQ_INT(epoll_wait(ep, &ev, 1, 0), 1);
    }
    munmap((void *)page, 4096);
    foreign_put(&f);
    sys_close(ep);
}

TEST_CASE(shard, bytes_on_their_way_to_a_bell)
{
    late_bytes(3);
    late_bytes(40);
}

/* Who was late with his byte, the news having been found by another's: each is an edge, finds
 * nothing, and leaves a byte. */
TEST_CASE(shard, bytes_after_their_news)
{
    enum { TIMES = 3000, SENT = 1 };
    int ep = sys_epoll_create1(0);
    struct epoll_event ev;
    _Atomic uint32_t *page;
    struct foreign f;

    foreign_bell(&f, &ep);
    page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, f.page, 0);
    ASSERT(page != MAP_FAILED);
    for (int i = 0; i < TIMES; i++) {
        EXPECT(!rsk_shard_arm(f.s));
        atomic_fetch_add(&page[SENT], 1);
        ASSERT_EQ_INT(send(f.event, "", 1, MSG_DONTWAIT), 1);
        ASSERT_EQ_INT(epoll_wait(ep, &ev, 1, 0), 1);
        rsk_shard_disarm(f.s);
        EXPECT_EQ_INT(rsk_shard_drain(f.s), 0);
    }
    ASSERT(ring_once(&f, ep) < 100);
    munmap((void *)page, 4096);
    foreign_put(&f);
    sys_close(ep);
}
