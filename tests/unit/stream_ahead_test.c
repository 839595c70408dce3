/*
 * stream_ahead_test.c - who only looks, by FIONREAD or MSG_PEEK, sees across a switch what TCP
 * would show: a program that waits in this way for a whole message gets it.
 */
#include "tests/unit/stream_ahead.h"

#include <linux/sockios.h>

TEST_CASE(stream_ahead, beyond_the_switch)
{
    struct end a, b;
    uint64_t pos;

    cross(&a, &b, &pos);
    sees(&a, pos);
    more(&b, &pos, 5000);
    sees(&a, pos);
    EXPECT_EQ_INT(conn_of(a.s)->x->rx.state, RX_gS);
    reads(&a, pos);
    EXPECT_EQ_INT(a.s->pub->path_rx, FB_PATH_SHM);
    done(&b);
    done(&a);
}

/* What this thread is asleep for in the kernel's poll, as far as the library knows; since
 * before the switch. */
static struct pollfd asleep_on;
static struct fb_sleeper *asleep;

static void wakes_up(void)
{
    fb_sleeper_end(asleep);
    asleep = NULL;
}

static void falls_asleep(struct end *a, struct end *b)
{
    (void)b;
    wakes_up();
    asleep_on = (struct pollfd){.fd = a->fd, .events = POLLIN};
    asleep = fb_sleeper_poll(&asleep_on, 1);
}

static void falls_asleep_on_a_rail(struct end *a, struct end *b)
{
    uint64_t limit = sys_now() + PATIENCE;
    unsigned char byte = 0;

    while (conn_rail_tx(conn_of(a->s)) == 0) {
        ASSERT(sys_now() < limit);
        ASSERT_EQ_INT(put(a, &byte, 1), 1);
        ASSERT_EQ_INT(get(b, &byte, 1), 1);
        jobs_done();
    }
    falls_asleep(a, b);
}

static _Atomic int wakes;

static void woken(struct fb_watcher *w, unsigned events)
{
    (void)w;
    (void)events;
    atomic_fetch_add(&wakes, 1);
}

static void in_3_ms(void *over)
{
    if (!rsk_timer_add(3000000, job_over, over))
        job_over(over);
}

/* The progress thread has had time to look again, and has. */
static void looked_again(void)
{
    sem_t over;

    sem_init(&over, 0, 0);
    ASSERT_EQ_INT(rsk_loop_post(in_3_ms, &over), 0);
    while (sem_wait(&over))
        ;
}

/* A thread asleep in the kernel's poll since before the switch has to wake up before
 * anything beyond it can be read. So it is not shown until then; and who was not shown it is
 * told when it is. */
static void not_before_it_can_be_read(void (*sleeps)(struct end *a, struct end *b))
{
    struct fb_watcher watcher = {.wake = woken};
    struct end a, b;
    uint64_t pos, S;
    int before;

    cross_after(sleeps, &a, &b, &pos);
    more(&b, &pos, 5000);
    S = conn_of(a.s)->x->rx.S;
    fb_watch(a.s, &watcher, NULL);
    UNTIL(count(&a) > S || conn_of(a.s)->x->rx.unshown);
    for (int i = 0; i < 5; i++) {
        ASSERT_EQ_U64(count(&a), S);
        ASSERT_EQ_U64(show(&a, in, sizeof(in)), S);
        looked_again();
    }
    before = atomic_load(&wakes);
    wakes_up();
    UNTIL(atomic_load(&wakes) > before);
    sees(&a, pos);
    fb_unwatch(a.s, &watcher, NULL);
    reads(&a, pos);
    done(&b);
    done(&a);
}

TEST_CASE(stream_ahead, not_before_it_can_be_read)
{
    not_before_it_can_be_read(falls_asleep);
}

TEST_CASE(stream_ahead, not_before_it_can_be_read_by_who_sends_on_a_rail)
{
    not_before_it_can_be_read(falls_asleep_on_a_rail);
}

/* The other one: all before the switch is read, and what was shown was all that there is. */
TEST_CASE(stream_ahead, read_while_one_sleeps)
{
    struct end a, b;
    uint64_t pos, S;

    cross_after(falls_asleep, &a, &b, &pos);
    more(&b, &pos, 5000);
    S = conn_of(a.s)->x->rx.S;
    UNTIL(count(&a) > S || conn_of(a.s)->x->rx.unshown);
    ASSERT_EQ_U64(show(&a, in, sizeof(in)), S);
    ASSERT_EQ_INT(get(&a, in, (size_t)S), (int)S);
    EXPECT(check(in, 0, (size_t)S));
    EXPECT_EQ_INT(
        fb_recvv(a.s, a.fd, &(struct iovec){in + S, sizeof(in) - (size_t)S}, 1, MSG_DONTWAIT),
        -EAGAIN);
    EXPECT_EQ_U64(count(&a), 0);
    wakes_up();
    reads_on(&a, (size_t)S, pos);
    done(&b);
    done(&a);
}

/* The sender leaves before anything is read: its bytes are there twice, and more come by TCP. */
TEST_CASE(stream_ahead, beyond_the_leave)
{
    struct end a, b;
    uint64_t pos;

    cross(&a, &b, &pos);
    more(&b, &pos, 3000);
    sees(&a, pos);
    end_leave(conn_of(b.s), RSN_RAIL_FAILED);
    more(&b, &pos, 40000);
    sees(&a, pos);
    reads(&a, pos);
    done(&b);
    done(&a);
}

/* The same, seen by a reader that has taken the frames and not yet what the ring has. */
TEST_CASE(stream_ahead, beyond_the_overlap)
{
    struct end a, b;
    uint64_t pos = 0;

    eager();
    pair(&a, &b);
    ASSERT(board(&a, &b));
    more(&b, &pos, 3000);
    end_leave(conn_of(b.s), RSN_RAIL_FAILED);
    UNTIL(conn_of(a.s)->x->rx.state == RX_sk);
    sees(&a, pos);
    more(&b, &pos, 40000);
    sees(&a, pos);
    reads(&a, pos);
    UNTIL(fb_plain(a.s) || a.s->pub->path_rx == FB_PATH_TCP);
    done(&b);
    done(&a);
}

/* The switch and the leave, for a receiver that looks only then. */
TEST_CASE(stream_ahead, beyond_both_at_once)
{
    struct end a, b;
    uint64_t pos;

    cross(&a, &b, &pos);
    end_leave(conn_of(b.s), RSN_RAIL_FAILED);
    more(&b, &pos, 40000);
    sees(&a, pos);
    reads(&a, pos);
    done(&b);
    done(&a);
}

/* The receiver's stream is to be TCP's alone: what is in the ring has to come that way first. */
TEST_CASE(stream_ahead, pinned_before_the_look)
{
    struct end a, b;
    uint64_t pos;

    cross(&a, &b, &pos);
    more(&b, &pos, 3000);
    fb_pin(a.s, RSN_CALL, false);
    sees(&a, pos);
    more(&b, &pos, 3000);
    sees(&a, pos);
    reads(&a, pos);
    done(&b);
    done(&a);
}

TEST_CASE(stream_ahead, pinned_after_the_look)
{
    struct end a, b;
    uint64_t pos;

    cross(&a, &b, &pos);
    sees(&a, pos);
    fb_pin(a.s, RSN_CALL, false);
    more(&b, &pos, 3000);
    sees(&a, pos);
    reads(&a, pos);
    done(&b);
    done(&a);
}

/* MSG_WAITALL may return less with MSG_PEEK (POSIX), but nothing twice. */
TEST_CASE(stream_ahead, waitall_shows_nothing_twice)
{
    struct end a, b;
    struct iovec v = {in, sizeof(in)};
    uint64_t pos;
    ssize_t r;

    cross(&a, &b, &pos);
    more(&b, &pos, 3000);
    memset(in, 0, sizeof(in));
    r = fb_recvv(a.s, a.fd, &v, 1, MSG_PEEK | MSG_WAITALL | MSG_DONTWAIT);
    ASSERT(r > 0);
    EXPECT((uint64_t)r <= pos);
    EXPECT(check(in, 0, (size_t)r));
    reads(&a, pos);
    done(&b);
    done(&a);
}

/* FIN is there when the half goes on its rail, and nobody watched the connection yet: the next look
 * says it. With a word of the library's before it, or without, as of a process that was killed. */
static void ended_behind_the_switch(bool killed)
{
    struct held h;
    struct end a, b;
    uint64_t pos, S;

    cross(&a, &b, &pos);
    more(&b, &pos, 3000);
    S = conn_of(a.s)->x->rx.S;
    EXPECT_EQ_INT(killed ? shutdown(b.fd, SHUT_WR) : fb_shutdown(b.s, b.fd, SHUT_WR), 0);
    UNTIL(fb_io.poll(a.fd, POLLRDHUP) & POLLRDHUP);
    hold(&h);
    ASSERT_EQ_INT(get(&a, in, (size_t)S), (int)S);
    ASSERT_EQ_INT(conn_of(a.s)->x->rx.state, RX_gS);
    EXPECT_EQ_INT(fb_ready(a.s, a.fd, POLLIN | POLLRDHUP), POLLIN | POLLRDHUP);
    let_go(&h);
    reads_on(&a, (size_t)S, pos);
    done(&b);
    done(&a);
}

TEST_CASE(stream_ahead, ended_behind_the_switch)
{
    ended_behind_the_switch(false);
}

TEST_CASE(stream_ahead, ended_behind_the_switch_without_a_word)
{
    ended_behind_the_switch(true);
}

/* TCP has nothing that it has not brought to the other end: over loopback, too, that may take until
 * other threads have run. */
static bool all_brought(const struct end *e)
{
    int n = 0;

    return ioctl(e->fd, SIOCOUTQ, &n) == 0 && n == 0;
}

/* a is before a switch, behind which some bytes are in the ring, and then, by TCP again, some more:
 * all is there, and the progress thread has not looked at what lies behind the switch before the
 * caller comes to it. */
static uint64_t there_and_back(struct end *a, struct end *b, size_t by_rail, size_t by_tcp)
{
    struct held h;
    uint64_t pos, S;
    ssize_t got;
    int state;

    cross(a, b, &pos);
    S = conn_of(a->s)->x->rx.S;
    more(b, &pos, by_rail);
    end_leave(conn_of(b->s), RSN_CALL);
    more(b, &pos, by_tcp);
    UNTIL(all_brought(b));
    hold(&h);
    got = get(a, in, (size_t)S);
    state = conn_of(a->s)->x->rx.state;
    let_go(&h);
    ASSERT_EQ_INT(got, (int)S);
    ASSERT_EQ_INT(state, RX_gS);
    return pos - S;
}

TEST_CASE(stream_ahead, received_at_once)
{
    struct end a, b;
    uint64_t n = there_and_back(&a, &b, 3, 15);

    EXPECT_EQ_INT(fb_ready(a.s, a.fd, POLLIN), POLLIN);
    EXPECT_EQ_INT(get(&a, in, sizeof(in)), (int)n);
    done(&b);
    done(&a);
}

TEST_CASE(stream_ahead, shown_at_once)
{
    struct end a, b;
    uint64_t n = there_and_back(&a, &b, 3, 15);

    EXPECT_EQ_U64(show(&a, in, sizeof(in)), n);
    EXPECT_EQ_INT(get(&a, in, sizeof(in)), (int)n);
    done(&b);
    done(&a);
}

TEST_CASE(stream_ahead, counted_at_once)
{
    struct end a, b;
    uint64_t n = there_and_back(&a, &b, 3, 15);

    EXPECT_EQ_INT(fb_inq(a.s, a.fd), (int)n);
    EXPECT_EQ_INT(get(&a, in, sizeof(in)), (int)n);
    done(&b);
    done(&a);
}

TEST_CASE(stream_ahead, urgent_behind_it)
{
    struct end a, b;
    uint64_t n = there_and_back(&a, &b, 3, 15);

    ASSERT_EQ_INT(send(b.fd, "!", 1, MSG_OOB), 1);
    UNTIL(fb_io.poll(a.fd, POLLPRI) & POLLPRI);
    EXPECT_EQ_INT(fb_ready(a.s, a.fd, POLLIN | POLLPRI), POLLIN | POLLPRI);
    EXPECT_EQ_INT(get(&a, in, sizeof(in)), (int)n);
    EXPECT(fb_at_mark(a.s, a.fd));
    done(&b);
    done(&a);
}

static bool (*real_at_mark)(int fd);
static int urgent_from;

/* It comes just after it was looked for. */
static bool late_mark(int fd)
{
    bool yes = real_at_mark(fd);

    if (!yes && urgent_from >= 0) {
        EXPECT_EQ_INT(send(urgent_from, "!", 1, MSG_OOB), 1);
        UNTIL(fb_io.poll(fd, POLLPRI) & POLLPRI);
        urgent_from = -1;
    }
    return yes;
}

/* A receive that has bytes does not pass over it. */
TEST_CASE(stream_ahead, urgent_while_it_goes_on)
{
    struct iovec v = {in, sizeof(in)};
    struct end a, b;
    uint64_t pos = 0;

    eager();
    pair(&a, &b);
    more(&b, &pos, 10);
    UNTIL(fb_inq(a.s, a.fd) == 10);
    urgent_from = b.fd;
    real_at_mark = fb_io.at_mark;
    fb_io.at_mark = late_mark;
    EXPECT_EQ_INT(fb_recvv(a.s, a.fd, &v, 1, MSG_WAITALL | MSG_DONTWAIT), 10);
    fb_io.at_mark = real_at_mark;
    EXPECT_EQ_INT(urgent_from, -1);
    EXPECT(fb_at_mark(a.s, a.fd));
    done(&b);
    done(&a);
}

/* What the ring has counts as unread although the frame before it has not been looked at: no FIN
 * before the reset, which the peer could take for the end. */
TEST_CASE(stream_ahead, closed_before_it)
{
    struct end a, b;
    int err = 0;
    socklen_t len = sizeof(err);

    there_and_back(&a, &b, 300, 0);
    fb_close(a.s, a.fd);
    close(a.fd);
    UNTIL(fb_io.poll(b.fd, POLLRDHUP) & POLLHUP);
    EXPECT_EQ_INT(getsockopt(b.fd, SOL_SOCKET, SO_ERROR, &err, &len), 0);
    EXPECT_EQ_INT(err, ECONNRESET);
    fb_put(a.s);
    done(&b);
}

/* Its peer leaves when it hears of that, and its frame is answered by no reset. */
TEST_CASE(stream_ahead, shut_both_ways_before_it)
{
    struct end a, b;
    uint64_t pos, S;
    int err = 0;
    socklen_t len = sizeof(err);

    cross(&a, &b, &pos);
    S = conn_of(a.s)->x->rx.S;
    more(&b, &pos, 30);
    ASSERT_EQ_INT(get(&a, in, (size_t)S), (int)S);
    EXPECT_EQ_INT(fb_shutdown(a.s, a.fd, SHUT_RDWR), 0);
    UNTIL(fb_plain(b.s));
    EXPECT_EQ_INT(getsockopt(b.fd, SOL_SOCKET, SO_ERROR, &err, &len), 0);
    EXPECT_EQ_INT(err, 0);
    reads_on(&a, (size_t)S, pos);
    EXPECT_EQ_INT(get(&a, in, 1), 0);
    done(&b);
    done(&a);
}
