/*
 * peers.c - what other libraries of this kind got wrong and no other file here asks: a sender whose
 * peer makes no calls, writes of single bytes, forks before anything has moved.
 */
#include "tests/conform/kit.h"

#include <sys/epoll.h>
#include <sys/wait.h>
#include <time.h>

static int p[2];

CASE(single_bytes)
{
    size_t sent = 0;

    pair(p);
    nonblock(p[0], true);
    while (sent < 5000 && send(p[0], &(char){(char)pattern(sent)}, 1, 0) == 1)
        sent++;
    say("sent %zu without a read", sent);
    say("all %d", take(p[1], 0, sent));
}

static void writes_and_goes(struct far *f)
{
    put(f->fd, 0, 60000);
}

/* The receiver computes, and makes no call until the sender has gone. */
CASE(receiver_computes)
{
    struct far far;

    far_begin(&far, writes_and_goes);
    far_end(&far);
    say("all %d", take(far.fd, 0, 60000));
    SHOW(recv(far.fd, (char[1]){0}, 1, 0));
}

static void reads_slowly(struct far *f)
{
    far_wait(f);
    say("far: all %d", take(f->fd, 0, SIZE_MAX));
}

/* The sender computes, or ends, while much of what it has sent is still with it. */
CASE(sender_computes)
{
    struct far far;
    size_t at = 0;

    far_begin(&far, reads_slowly);
    fill(far.fd, &at);
    SHOW(close(far.fd));
    far_step(&far);
    far_end(&far);
}

CASE(fork_before_the_first_byte)
{
    pid_t pid;
    int status = -1;

    pair_raw(&net4, p);
    fflush(stdout);
    pid = fork();
    if (pid == 0) {
        board_one(p[1], true);
        exit(0);
    }
    close(p[1]);
    board_one(p[0], false);
    must(waitpid(pid, &status, 0) == pid, "waitpid");
    say("status %d", status);
    SHOW(recv(p[0], (char[1]){0}, 1, 0));
}

/* One thread waits in epoll for many; none that is ready is forgotten while others stay ready. */
CASE(a_busy_one_starves_nobody)
{
    struct epoll_event e = {.events = EPOLLIN};
    int ep = epoll_create1(0), q[4][2], seen = 0;
    struct timespec begun, now;

    for (int i = 0; i < 4; i++) {
        pair(q[i]);
        e.data.u32 = (unsigned)i;
        must(epoll_ctl(ep, EPOLL_CTL_ADD, q[i][0], &e) == 0, "ADD");
    }
    deliver(q[0][1], q[0][0], "never read");
    clock_gettime(CLOCK_MONOTONIC, &begun);
    now = begun;
    for (int round = 0; now.tv_sec - begun.tv_sec < 10 && seen != 15; round++) {
        clock_gettime(CLOCK_MONOTONIC, &now);
        if (round == 20)
            for (int i = 1; i < 4; i++)
                deliver(q[i][1], q[i][0], "x");
        must(epoll_wait(ep, &e, 1, 1000) == 1, "epoll_wait");
        seen |= 1 << e.data.u32;
    }
    say("seen %x", (unsigned)seen);
}

CASE(poll_on_an_instance)
{
    struct epoll_event e = {.events = EPOLLIN};
    struct pollfd q = {.events = POLLIN};

    pair(p);
    q.fd = epoll_create1(0);
    must(epoll_ctl(q.fd, EPOLL_CTL_ADD, p[0], &e) == 0, "ADD");
    SHOW(poll(&q, 1, 0));
    deliver(p[1], p[0], "x");
    SHOW(poll(&q, 1, 10000));
}

CASE(short_lived_epoll_instances)
{
    struct epoll_event e = {.events = EPOLLIN};
    int lowest;

    pair(p);
    deliver(p[1], p[0], "x");
    for (int i = 0; i < 300; i++) {
        int ep = epoll_create1(0);

        must(epoll_ctl(ep, EPOLL_CTL_ADD, p[0], &e) == 0, "ADD");
        must(epoll_wait(ep, &e, 1, 1000) == 1, "epoll_wait");
        must(close(ep) == 0, "close");
    }
    lowest = dup(0);
    /* A thread of the library's that stands still in the middle of a step may have had it. */
    for (int i = 0; lowest != p[1] + 1 && i < 20; i++) {
        close(lowest);
        lowest = dup(0);
    }
    say("lowest number %d", lowest - p[1]);
}
