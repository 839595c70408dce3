/*
 * epoll_list.c - epoll(7): the interest list. Numbers that are closed, duplicated and used again,
 * several instances, nesting, what other threads change, and other descriptors beside.
 */
#include "tests/conform/kit_epoll.h"

#include <sys/eventfd.h>

EACH_ORDER(close_removes)
{
    begin(f);
    ADD(p[0], EPOLLIN, 'a');
    deliver(p[1], p[0], "x");
    SHOW(close(p[0]));
    got(ep, 10, SOON);
}

EACH_ORDER(number_used_again)
{
    int q[2], moved;

    begin(f);
    ADD(p[0], EPOLLIN, 'a');
    SHOW(close(p[0]));
    pair(q);
    moved = dup2(q[0], p[0]);
    must(moved == p[0], "dup2");
    deliver(q[1], q[0], "x");
    got(ep, 10, SOON);
    ADD(p[0], EPOLLIN, 'b');
    got(ep, 10, DUE);
}

EACH_ORDER(close_with_a_duplicate)
{
    int d;

    begin(f);
    d = dup(p[0]);
    ADD(p[0], EPOLLIN, 'a');
    SHOW(close(p[0]));
    deliver(p[1], d, "x");
    got(ep, 10, DUE);
    SHOW(close(d));
    got(ep, 10, SOON);
}

EACH_ORDER(both_duplicates)
{
    int d;

    begin(f);
    d = dup(p[0]);
    ADD(p[0], EPOLLIN, 'a');
    ADD(d, EPOLLIN, 'b');
    deliver(p[1], p[0], "x");
    got(ep, 10, DUE);
    DEL(d);
    got(ep, 10, DUE);
}

EACH_ORDER(dup2_over_a_member)
{
    int q[2];

    begin(f);
    pair(q);
    ADD(p[0], EPOLLIN, 'a');
    SHOW_AS("dup2", dup2(q[0], p[0]) == p[0] ? 0 : -1);
    deliver(q[1], q[0], "x");
    got(ep, 10, SOON);
    MOD(p[0], EPOLLIN, 'b');
}

EACH_ORDER(two_instances)
{
    int other;

    begin(f);
    other = epoll_create1(0);
    ADD(p[0], EPOLLIN, 'a');
    SHOW(ctl(other, EPOLL_CTL_ADD, p[0], EPOLLIN | EPOLLET, 'b'));
    deliver(p[1], p[0], "x");
    got(ep, 10, DUE);
    got(other, 10, DUE);
    got(ep, 10, DUE);
    got(other, 10, SOON);
    SHOW(close(other));
    got(ep, 10, DUE);
}

EACH_ORDER(nested)
{
    int outer;

    begin(f);
    outer = epoll_create1(0);
    ADD(p[0], EPOLLIN, 'a');
    SHOW(ctl(outer, EPOLL_CTL_ADD, ep, EPOLLIN, 'o'));
    got(outer, 10, SOON);
    deliver(p[1], p[0], "x");
    got(outer, 10, DUE);
    got(ep, 10, DUE);
    got(outer, 10, DUE);
    must(take(p[0], 0, 0) && read(p[0], (char[1]){0}, 1) == 1, "read");
    got(outer, 10, SOON);
}

EACH_ORDER(nested_deeper)
{
    int middle, outer;
    struct pollfd q = {.events = POLLIN};

    begin(f);
    middle = epoll_create1(0);
    outer = epoll_create1(0);
    q.fd = outer;
    ADD(p[0], EPOLLIN, 'a');
    SHOW(ctl(middle, EPOLL_CTL_ADD, ep, EPOLLIN, 'm'));
    SHOW(ctl(outer, EPOLL_CTL_ADD, middle, EPOLLIN, 'o'));
    SHOW(poll(&q, 1, 0));
    deliver(p[1], p[0], "x");
    SHOW(poll(&q, 1, 10000));
    say_events("outer", q.revents);
    got(outer, 10, DUE);
    got(middle, 10, DUE);
    got(ep, 10, DUE);
}

EACH_ORDER(loop_is_refused)
{
    int other;

    begin(f);
    other = epoll_create1(0);
    SHOW(ctl(ep, EPOLL_CTL_ADD, other, EPOLLIN, 'a'));
    SHOW(ctl(other, EPOLL_CTL_ADD, ep, EPOLLIN, 'b'));
}

EACH_ORDER(in_select)
{
    fd_set in;
    struct timeval now = {0, 0}, late = {10, 0};

    begin(f);
    ADD(p[0], EPOLLIN, 'a');
    FD_ZERO(&in);
    FD_SET(ep, &in);
    SHOW(select(ep + 1, &in, NULL, NULL, &now));
    deliver(p[1], p[0], "x");
    FD_SET(ep, &in);
    SHOW(select(ep + 1, &in, NULL, NULL, &late));
    say("%d", FD_ISSET(ep, &in) != 0);
}

/* All have their turn when the array is small. */
/* Who boards meanwhile has a second turn before others have theirs, but nobody waits for long. */
CASE(small_array)
{
    int q[6][2], seen = 0, calls = 0;

    ep = epoll_create1(0);
    for (int i = 0; i < 6; i++) {
        pair(q[i]);
        ADD(q[i][0], EPOLLIN, (char)('a' + i));
        deliver(q[i][1], q[i][0], "x");
    }
    for (; seen != 0x3f && calls < 18; calls++) {
        struct epoll_event e;

        must(epoll_wait(ep, &e, 1, 1000) == 1, "epoll_wait");
        seen |= 1 << (e.data.u32 - 'a');
    }
    say("seen %x", (unsigned)seen);
    got(ep, 64, DUE);
}

/* The same where half of them are pipes. Whose turn it is may differ, but nobody waits for long. */
CASE(small_array_with_pipes)
{
    int q[6][2], seen = 0, calls = 0;

    ep = epoll_create1(0);
    for (int i = 0; i < 6; i++) {
        if (i % 2)
            must(pipe(q[i]) == 0 && write(q[i][1], "x", 1) == 1, "pipe");
        else
            pair(q[i]);
        ADD(q[i][0], EPOLLIN, (char)('a' + i));
        if (i % 2 == 0)
            deliver(q[i][1], q[i][0], "x");
    }
    for (; seen != 0x3f && calls < 18; calls++) {
        struct epoll_event e;

        must(epoll_wait(ep, &e, 1, 1000) == 1, "epoll_wait");
        seen |= 1 << (e.data.u32 - 'a');
    }
    say("seen %x", (unsigned)seen);
}

EACH_ORDER(kernel_descriptors_beside)
{
    int pipes[2], counter = eventfd(0, 0), seen = 0;

    begin(f);
    must(pipe(pipes) == 0 && write(pipes[1], "x", 1) == 1, "pipe");
    ADD(p[0], EPOLLIN, 'a');
    ADD(pipes[0], EPOLLIN, 'b');
    ADD(counter, EPOLLIN, 'c');
    must(write(counter, &(uint64_t){1}, 8) == 8, "eventfd");
    deliver(p[1], p[0], "x");
    for (int i = 0; i < 100 && seen != 7; i++) {
        struct epoll_event e;

        must(epoll_wait(ep, &e, 1, 1000) == 1, "epoll_wait");
        seen |= 1 << (e.data.u32 - 'a');
    }
    say("seen %x", (unsigned)seen);
    got(ep, 10, DUE);
}

static void adds(void *unused)
{
    (void)unused;
    ctl(ep, EPOLL_CTL_ADD, p[0], EPOLLIN, 'a');
}

EACH_ORDER(added_while_another_sleeps)
{
    struct later l;

    begin(f);
    deliver(p[1], p[0], "x");
    later(&l, adds, NULL);
    got(ep, 10, 10000);
    later_end(&l);
}

static void mods(void *unused)
{
    (void)unused;
    ctl(ep, EPOLL_CTL_MOD, p[0], EPOLLIN, 'b');
}

EACH_ORDER(modified_while_another_sleeps)
{
    struct later l;

    begin(f);
    ADD(p[0], EPOLLPRI, 'a');
    deliver(p[1], p[0], "x");
    later(&l, mods, NULL);
    got(ep, 10, 10000);
    later_end(&l);
}

EACH_ORDER(exclusive)
{
    begin(f);
    ADD(p[0], EPOLLIN | EPOLLEXCLUSIVE, 'a');
    deliver(p[1], p[0], "x");
    got(ep, 10, DUE);
    MOD(p[0], EPOLLIN, 'b');
    ADD(p[1], EPOLLIN | EPOLLEXCLUSIVE | EPOLLONESHOT, 'c');
    ADD(p[1], EPOLLIN | EPOLLEXCLUSIVE | EPOLLRDHUP, 'c');
}

EACH_ORDER(pwait_mask)
{
    struct epoll_event e;
    sigset_t usr1, none;

    begin(f);
    catch_signal(SIGUSR1, SA_RESTART);
    sigemptyset(&none);
    sigemptyset(&usr1);
    sigaddset(&usr1, SIGUSR1);
    sigprocmask(SIG_BLOCK, &usr1, NULL);
    ADD(p[0], EPOLLIN, 'a');
    raise(SIGUSR1);
    SHOW(epoll_wait(ep, &e, 1, 10));
    say("caught %d", (int)caught);
    SHOW(epoll_pwait(ep, &e, 1, 10000, &none));
    say("caught %d", (int)caught);
    SHOW(epoll_pwait(ep, &e, 1, 10, &none));
    deliver(p[1], p[0], "x");
    raise(SIGUSR1);
    SHOW(epoll_pwait(ep, &e, 1, 10000, &usr1));
}

EACH_ORDER(pwait2)
{
    struct timespec t = {0, 1000000}, bad = {0, 2000000000};
    struct epoll_event e;

    begin(f);
    ADD(p[0], EPOLLIN, 'a');
    SHOW(epoll_pwait2(ep, &e, 1, &t, NULL));
    SHOW(epoll_pwait2(ep, &e, 1, &bad, NULL));
    deliver(p[1], p[0], "x");
    SHOW(epoll_pwait2(ep, &e, 1, NULL, NULL));
}

CASE(registered_before_connect)
{
    struct sockaddr_storage at;
    socklen_t len;
    int l = listener(&net4, &at, &len);

    p[0] = socket(AF_INET, SOCK_STREAM, 0);
    ep = epoll_create1(0);
    ADD(p[0], EPOLLIN | EPOLLET, 'a');
    got(ep, 10, DUE);
    SHOW(connect(p[0], (struct sockaddr *)&at, len));
    p[1] = accept(l, NULL, NULL);
    board(p[0], p[1]);
    got(ep, 10, SOON); /* edges of the bytes that board() moved */
    deliver(p[1], p[0], "x");
    got(ep, 10, DUE);
    got(ep, 10, SOON);
}

EACH_ORDER(del_while_ready)
{
    begin(f);
    ADD(p[0], EPOLLIN, 'a');
    deliver(p[1], p[0], "x");
    DEL(p[0]);
    got(ep, 10, SOON);
    ADD(p[0], EPOLLIN, 'b');
    got(ep, 10, DUE);
}

EACH_ORDER(both_ends_in_one)
{
    begin(f);
    until(p[0], POLLOUT);
    until(p[1], POLLOUT);
    ADD(p[0], EPOLLIN | EPOLLOUT, 'a');
    ADD(p[1], EPOLLIN | EPOLLOUT, 'b');
    got(ep, 10, DUE);
    deliver(p[1], p[0], "x");
    got(ep, 10, DUE);
    SHOW(close(p[1]));
    until(p[0], POLLRDHUP);
    got(ep, 10, DUE);
}

EACH_ORDER(hup_has_no_level_after_del)
{
    begin(f);
    ADD(p[0], EPOLLIN, 'a');
    reset(p[1]);
    until(p[0], POLLHUP);
    got(ep, 10, DUE);
    DEL(p[0]);
    got(ep, 10, SOON);
}

EACH_ORDER(wakeup_bits)
{
    begin(f);
    ADD(p[0], EPOLLIN | EPOLLWAKEUP, 'a');
    deliver(p[1], p[0], "x");
    got(ep, 10, DUE);
    MOD(p[0], EPOLLIN | EPOLLRDNORM | EPOLLRDBAND, 'b');
    got(ep, 10, DUE);
}

EACH_ORDER(duplicate_of_the_instance)
{
    int d;

    begin(f);
    d = dup(ep);
    ADD(p[0], EPOLLIN, 'a');
    deliver(p[1], p[0], "x");
    got(d, 10, DUE);
    SHOW(close(ep));
    got(d, 10, DUE);
    SHOW(ctl(d, EPOLL_CTL_MOD, p[0], EPOLLIN, 'b'));
    got(d, 10, DUE);
}

static void *sleeps_in_it(void *arg)
{
    struct epoll_event e = {0};

    (void)arg;
    say("the sleeper: %d", epoll_wait(ep, &e, 1, 10000));
    return NULL;
}

/* The kernel wakes both: whoever polls the instance takes nothing from who waits in it. */
EACH_ORDER(polled_beside_a_sleeper)
{
    struct pollfd by = {.events = POLLIN};
    pthread_t t;

    begin(f);
    by.fd = ep;
    ADD(p[0], EPOLLIN, 'a');
    for (int i = 0; i < 20; i++) {
        char c = 0;

        must(pthread_create(&t, NULL, sleeps_in_it, NULL) == 0, "pthread_create");
        sleep_ms(i % 3);
        must(send(p[1], "x", 1, 0) == 1, "send");
        must(poll(&by, 1, 10000) == 1, "poll");
        pthread_join(t, NULL);
        must(recv(p[0], &c, 1, 0) == 1, "recv");
    }
}

/* Nobody hands a stream back that its peer has reset. */
EACH_ORDER(exclusive_after_a_reset)
{
    begin(f);
    deliver(p[1], p[0], "unread");
    deliver(p[0], p[1], "unread");
    SHOW(close(p[1]));
    until(p[0], POLLHUP);
    ADD(p[0], EPOLLIN | EPOLLEXCLUSIVE, 'a');
    got(ep, 10, DUE);
    MOD(p[0], EPOLLIN, 'b');
    got(ep, 10, DUE);
}
