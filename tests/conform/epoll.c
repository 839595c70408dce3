/*
 * epoll.c - epoll(7) beyond what ready.c asks: level, edge and one-shot, bad
 * arguments, masks and time.
 */
#include "tests/conform/kit_epoll.h"

EACH_ORDER(add_twice)
{
    begin(f);
    ADD(p[0], EPOLLIN, 'a');
    ADD(p[0], EPOLLIN, 'b');
    deliver(p[1], p[0], "x");
    got(ep, 10, DUE);
}

EACH_ORDER(mod_and_del_of_what_is_not_there)
{
    begin(f);
    MOD(p[0], EPOLLIN, 'a');
    DEL(p[0]);
    ADD(p[0], EPOLLIN, 'a');
    DEL(p[0]);
    DEL(p[0]);
    deliver(p[1], p[0], "x");
    got(ep, 10, SOON);
}

EACH_ORDER(bad_arguments)
{
    struct epoll_event e = {EPOLLIN, {.u32 = 'a'}};

    begin(f);
    SHOW(epoll_ctl(ep, 99, p[0], &e));
    SHOW(epoll_ctl(ep, EPOLL_CTL_ADD, -1, &e));
    SHOW(epoll_ctl(-1, EPOLL_CTL_ADD, p[0], &e));
    SHOW(epoll_ctl(p[0], EPOLL_CTL_ADD, p[1], &e));
    SHOW(epoll_ctl(ep, EPOLL_CTL_ADD, ep, &e));
    SHOW(epoll_wait(ep, &e, 0, 0));
    SHOW(epoll_wait(ep, &e, -getpid(), 0));
    SHOW(epoll_wait(p[0], &e, 1, 0));
    SHOW(epoll_wait(-1, &e, 1, 0));
    SHOW(epoll_create(0) >= 0 ? 0 : -1);
    SHOW(epoll_create1(~EPOLL_CLOEXEC));
}

EACH_ORDER(null_event)
{
    begin(f);
    SHOW(epoll_ctl(ep, EPOLL_CTL_ADD, p[0], (void *)(uintptr_t)(getpid() < 0)));
    ADD(p[0], EPOLLIN, 'a');
    SHOW(epoll_ctl(ep, EPOLL_CTL_MOD, p[0], (void *)(uintptr_t)(getpid() < 0)));
    DEL(p[0]);
}

/* Without waiting: what another call says that is there, epoll says as well. */
EACH_ORDER(at_once)
{
    struct epoll_event e;

    begin(f);
    ADD(p[0], EPOLLIN, 'a');
    SHOW(epoll_wait(ep, &e, 1, 0));
    deliver(p[1], p[0], "x");
    SHOW(epoll_wait(ep, &e, 1, 0));
}

EACH_ORDER(level_stays)
{
    char buf[10];

    begin(f);
    ADD(p[0], EPOLLIN, 'a');
    got(ep, 10, SOON);
    deliver(p[1], p[0], "0123456789");
    got(ep, 10, DUE);
    got(ep, 10, DUE);
    SHOW(read(p[0], buf, 5));
    got(ep, 10, DUE);
    SHOW(read(p[0], buf, 5));
    got(ep, 10, SOON);
}

EACH_ORDER(edge_comes_once)
{
    char buf[10];

    begin(f);
    ADD(p[0], EPOLLIN | EPOLLET, 'a');
    deliver(p[1], p[0], "0123456789");
    got(ep, 10, DUE);
    got(ep, 10, SOON);
    SHOW(read(p[0], buf, 5));
    got(ep, 10, SOON);
    deliver(p[1], p[0], "more");
    got(ep, 10, DUE);
    got(ep, 10, SOON);
}

EACH_ORDER(edge_of_what_was_there)
{
    begin(f);
    deliver(p[1], p[0], "x");
    ADD(p[0], EPOLLIN | EPOLLET, 'a');
    got(ep, 10, DUE);
    got(ep, 10, SOON);
    MOD(p[0], EPOLLIN | EPOLLET, 'b');
    got(ep, 10, DUE);
    got(ep, 10, SOON);
}

EACH_ORDER(edge_out_once)
{
    begin(f);
    until(p[0], POLLOUT);
    ADD(p[0], EPOLLOUT | EPOLLET, 'a');
    got(ep, 10, DUE);
    got(ep, 10, SOON);
    MOD(p[0], EPOLLOUT | EPOLLET, 'a');
    got(ep, 10, DUE);
}

EACH_ORDER(edge_out_after_full)
{
    size_t at = 0;

    begin(f);
    fill(p[0], &at);
    ADD(p[0], EPOLLOUT | EPOLLET, 'a');
    got(ep, 10, SOON);
    must(take(p[1], 0, at), "take");
    got(ep, 10, 10000);
}

EACH_ORDER(edge_tells_in_with_out)
{
    begin(f);
    until(p[0], POLLOUT);
    ADD(p[0], EPOLLIN | EPOLLOUT | EPOLLET, 'a');
    got(ep, 10, DUE);
    got(ep, 10, SOON);
    deliver(p[1], p[0], "x");
    got(ep, 10, DUE);
}

EACH_ORDER(edge_of_the_end)
{
    begin(f);
    ADD(p[0], EPOLLIN | EPOLLRDHUP | EPOLLET, 'a');
    deliver(p[1], p[0], "x");
    got(ep, 10, DUE);
    SHOW(shutdown(p[1], SHUT_WR));
    until(p[0], POLLRDHUP);
    got(ep, 10, DUE);
    got(ep, 10, SOON);
}

EACH_ORDER(one_shot)
{
    begin(f);
    ADD(p[0], EPOLLIN | EPOLLONESHOT, 'a');
    deliver(p[1], p[0], "x");
    got(ep, 10, DUE);
    got(ep, 10, SOON);
    deliver(p[1], p[0], "y");
    got(ep, 10, SOON);
    MOD(p[0], EPOLLIN | EPOLLONESHOT, 'b');
    got(ep, 10, DUE);
    got(ep, 10, SOON);
}

EACH_ORDER(one_shot_is_silent_at_the_end)
{
    begin(f);
    ADD(p[0], EPOLLIN | EPOLLONESHOT, 'a');
    deliver(p[1], p[0], "x");
    got(ep, 10, DUE);
    reset(p[1]);
    until(p[0], POLLHUP);
    got(ep, 10, SOON);
    MOD(p[0], 0, 'b');
    got(ep, 10, DUE);
}

EACH_ORDER(no_events_but_errors)
{
    begin(f);
    ADD(p[0], 0, 'a');
    deliver(p[1], p[0], "x");
    got(ep, 10, SOON);
    reset(p[1]);
    until(p[0], POLLHUP);
    got(ep, 10, DUE);
}

EACH_ORDER(mod_changes_events_and_data)
{
    begin(f);
    deliver(p[1], p[0], "x");
    ADD(p[0], EPOLLOUT, 'a');
    until(p[0], POLLOUT);
    got(ep, 10, DUE);
    MOD(p[0], EPOLLIN, 'b');
    got(ep, 10, DUE);
    MOD(p[0], EPOLLPRI, 'c');
    got(ep, 10, SOON);
    MOD(p[0], EPOLLIN | EPOLLOUT, 'd');
    got(ep, 10, DUE);
}
