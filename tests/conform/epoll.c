/*
 * epoll.c - epoll(7) beyond what ready.c asks: the interest list, level, edge and one-shot, several
 * instances, nesting, and what close does. Data is never printed as it is but as the letter given to add().
 */
#include "tests/conform/kit.h"

#include <sys/epoll.h>
#include <sys/eventfd.h>

static int ep, p[2];

static void begin(void)
{
    pair(p);
    ep = epoll_create1(EPOLL_CLOEXEC);
}

static int ctl(int on, int op, int fd, unsigned events, char letter)
{
    struct epoll_event e = {events, {.u32 = (unsigned char)letter}};

    return epoll_ctl(on, op, fd, &e);
}

#define ADD(fd, events, letter) SHOW(ctl(ep, EPOLL_CTL_ADD, fd, events, letter))
#define MOD(fd, events, letter) SHOW(ctl(ep, EPOLL_CTL_MOD, fd, events, letter))
#define DEL(fd)                 SHOW(epoll_ctl(ep, EPOLL_CTL_DEL, fd, NULL))

static int by_letter(const void *a, const void *b)
{
    return (int)((const struct epoll_event *)a)->data.u32 -
           (int)((const struct epoll_event *)b)->data.u32;
}

/* Waits ms for up to max events and prints them in the order of their letters. */
static int got(int on, int max, int ms)
{
    struct epoll_event e[64];
    int n;

    errno = CLEAN;
    n = epoll_wait(on, e, max, ms);
    if (n < 0) {
        show("epoll_wait", n, errno);
        return n;
    }
    qsort(e, (size_t)n, sizeof(e[0]), by_letter);
    say("%d event%s", n, n == 1 ? "" : "s");
    for (int i = 0; i < n; i++) {
        char name[2] = {(char)e[i].data.u32, 0};

        say_events(name, (int)e[i].events);
    }
    return n;
}

CASE(add_twice)
{
    begin();
    ADD(p[0], EPOLLIN, 'a');
    ADD(p[0], EPOLLIN, 'b');
    deliver(p[1], p[0], "x");
    got(ep, 10, 0);
}

CASE(mod_and_del_of_what_is_not_there)
{
    begin();
    MOD(p[0], EPOLLIN, 'a');
    DEL(p[0]);
    ADD(p[0], EPOLLIN, 'a');
    DEL(p[0]);
    DEL(p[0]);
    deliver(p[1], p[0], "x");
    got(ep, 10, 0);
}

CASE(bad_arguments)
{
    struct epoll_event e = {EPOLLIN, {.u32 = 'a'}};

    begin();
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

CASE(null_event)
{
    begin();
    SHOW(epoll_ctl(ep, EPOLL_CTL_ADD, p[0], (void *)(uintptr_t)(getpid() < 0)));
    ADD(p[0], EPOLLIN, 'a');
    SHOW(epoll_ctl(ep, EPOLL_CTL_MOD, p[0], (void *)(uintptr_t)(getpid() < 0)));
    DEL(p[0]);
}

CASE(level_stays)
{
    char buf[10];

    begin();
    ADD(p[0], EPOLLIN, 'a');
    got(ep, 10, 0);
    deliver(p[1], p[0], "0123456789");
    got(ep, 10, 0);
    got(ep, 10, 0);
    SHOW(read(p[0], buf, 5));
    got(ep, 10, 0);
    SHOW(read(p[0], buf, 5));
    got(ep, 10, 0);
}

CASE(edge_comes_once)
{
    char buf[10];

    begin();
    ADD(p[0], EPOLLIN | EPOLLET, 'a');
    deliver(p[1], p[0], "0123456789");
    got(ep, 10, 0);
    got(ep, 10, 0);
    SHOW(read(p[0], buf, 5));
    got(ep, 10, 0);
    deliver(p[1], p[0], "more");
    got(ep, 10, 0);
    got(ep, 10, 0);
}

CASE(edge_of_what_was_there)
{
    begin();
    deliver(p[1], p[0], "x");
    ADD(p[0], EPOLLIN | EPOLLET, 'a');
    got(ep, 10, 0);
    got(ep, 10, 0);
    MOD(p[0], EPOLLIN | EPOLLET, 'b');
    got(ep, 10, 0);
    got(ep, 10, 0);
}

CASE(edge_out_once)
{
    begin();
    until(p[0], POLLOUT);
    ADD(p[0], EPOLLOUT | EPOLLET, 'a');
    got(ep, 10, 0);
    got(ep, 10, 0);
    MOD(p[0], EPOLLOUT | EPOLLET, 'a');
    got(ep, 10, 0);
}

CASE(edge_out_after_full)
{
    size_t at = 0;

    begin();
    fill(p[0], &at);
    ADD(p[0], EPOLLOUT | EPOLLET, 'a');
    got(ep, 10, 0);
    must(take(p[1], 0, at), "take");
    got(ep, 10, 10000);
}

CASE(edge_tells_in_with_out)
{
    begin();
    until(p[0], POLLOUT);
    ADD(p[0], EPOLLIN | EPOLLOUT | EPOLLET, 'a');
    got(ep, 10, 0);
    got(ep, 10, 0);
    deliver(p[1], p[0], "x");
    got(ep, 10, 0);
}

CASE(edge_of_the_end)
{
    begin();
    ADD(p[0], EPOLLIN | EPOLLRDHUP | EPOLLET, 'a');
    deliver(p[1], p[0], "x");
    got(ep, 10, 0);
    SHOW(shutdown(p[1], SHUT_WR));
    until(p[0], POLLRDHUP);
    got(ep, 10, 0);
    got(ep, 10, 0);
}

CASE(one_shot)
{
    begin();
    ADD(p[0], EPOLLIN | EPOLLONESHOT, 'a');
    deliver(p[1], p[0], "x");
    got(ep, 10, 0);
    got(ep, 10, 0);
    deliver(p[1], p[0], "y");
    got(ep, 10, 0);
    MOD(p[0], EPOLLIN | EPOLLONESHOT, 'b');
    got(ep, 10, 0);
    got(ep, 10, 0);
}

CASE(one_shot_is_silent_at_the_end)
{
    begin();
    ADD(p[0], EPOLLIN | EPOLLONESHOT, 'a');
    deliver(p[1], p[0], "x");
    got(ep, 10, 0);
    reset(p[1]);
    until(p[0], POLLHUP);
    got(ep, 10, 0);
    MOD(p[0], 0, 'b');
    got(ep, 10, 0);
}

CASE(no_events_but_errors)
{
    begin();
    ADD(p[0], 0, 'a');
    deliver(p[1], p[0], "x");
    got(ep, 10, 0);
    reset(p[1]);
    until(p[0], POLLHUP);
    got(ep, 10, 0);
}

CASE(mod_changes_events_and_data)
{
    begin();
    deliver(p[1], p[0], "x");
    ADD(p[0], EPOLLOUT, 'a');
    until(p[0], POLLOUT);
    got(ep, 10, 0);
    MOD(p[0], EPOLLIN, 'b');
    got(ep, 10, 0);
    MOD(p[0], EPOLLPRI, 'c');
    got(ep, 10, 0);
    MOD(p[0], EPOLLIN | EPOLLOUT, 'd');
    got(ep, 10, 0);
}

CASE(close_removes)
{
    begin();
    ADD(p[0], EPOLLIN, 'a');
    deliver(p[1], p[0], "x");
    SHOW(close(p[0]));
    got(ep, 10, 0);
}

CASE(number_used_again)
{
    int q[2], moved;

    begin();
    ADD(p[0], EPOLLIN, 'a');
    SHOW(close(p[0]));
    pair(q);
    moved = dup2(q[0], p[0]);
    must(moved == p[0], "dup2");
    deliver(q[1], q[0], "x");
    got(ep, 10, 0);
    ADD(p[0], EPOLLIN, 'b');
    got(ep, 10, 0);
}

CASE(close_with_a_duplicate)
{
    int d;

    begin();
    d = dup(p[0]);
    ADD(p[0], EPOLLIN, 'a');
    SHOW(close(p[0]));
    deliver(p[1], d, "x");
    got(ep, 10, 0);
    SHOW(close(d));
    got(ep, 10, 0);
}

CASE(both_duplicates)
{
    int d;

    begin();
    d = dup(p[0]);
    ADD(p[0], EPOLLIN, 'a');
    ADD(d, EPOLLIN, 'b');
    deliver(p[1], p[0], "x");
    got(ep, 10, 0);
    DEL(d);
    got(ep, 10, 0);
}

CASE(dup2_over_a_member)
{
    int q[2];

    begin();
    pair(q);
    ADD(p[0], EPOLLIN, 'a');
    SHOW_AS("dup2", dup2(q[0], p[0]) == p[0] ? 0 : -1);
    deliver(q[1], q[0], "x");
    got(ep, 10, 0);
    MOD(p[0], EPOLLIN, 'b');
}

CASE(two_instances)
{
    int other;

    begin();
    other = epoll_create1(0);
    ADD(p[0], EPOLLIN, 'a');
    SHOW(ctl(other, EPOLL_CTL_ADD, p[0], EPOLLIN | EPOLLET, 'b'));
    deliver(p[1], p[0], "x");
    got(ep, 10, 0);
    got(other, 10, 0);
    got(ep, 10, 0);
    got(other, 10, 0);
    SHOW(close(other));
    got(ep, 10, 0);
}

CASE(nested)
{
    int outer;

    begin();
    outer = epoll_create1(0);
    ADD(p[0], EPOLLIN, 'a');
    SHOW(ctl(outer, EPOLL_CTL_ADD, ep, EPOLLIN, 'o'));
    got(outer, 10, 0);
    deliver(p[1], p[0], "x");
    got(outer, 10, 0);
    got(ep, 10, 0);
    got(outer, 10, 0);
    must(take(p[0], 0, 0) && read(p[0], (char[1]){0}, 1) == 1, "read");
    got(outer, 10, 0);
}

CASE(nested_deeper)
{
    int middle, outer;
    struct pollfd q = {.events = POLLIN};

    begin();
    middle = epoll_create1(0);
    q.fd = outer = epoll_create1(0);
    ADD(p[0], EPOLLIN, 'a');
    SHOW(ctl(middle, EPOLL_CTL_ADD, ep, EPOLLIN, 'm'));
    SHOW(ctl(outer, EPOLL_CTL_ADD, middle, EPOLLIN, 'o'));
    SHOW(poll(&q, 1, 0));
    deliver(p[1], p[0], "x");
    SHOW(poll(&q, 1, 10000));
    say_events("outer", q.revents);
    got(outer, 10, 0);
    got(middle, 10, 0);
    got(ep, 10, 0);
}

CASE(loop_is_refused)
{
    int other;

    begin();
    other = epoll_create1(0);
    SHOW(ctl(ep, EPOLL_CTL_ADD, other, EPOLLIN, 'a'));
    SHOW(ctl(other, EPOLL_CTL_ADD, ep, EPOLLIN, 'b'));
}

CASE(in_select)
{
    fd_set in;
    struct timeval now = {0, 0};

    begin();
    ADD(p[0], EPOLLIN, 'a');
    FD_ZERO(&in);
    FD_SET(ep, &in);
    SHOW(select(ep + 1, &in, NULL, NULL, &now));
    deliver(p[1], p[0], "x");
    FD_SET(ep, &in);
    SHOW(select(ep + 1, &in, NULL, NULL, &now));
    say("%d", FD_ISSET(ep, &in) != 0);
}

/* All have their turn when the array is small. */
CASE(small_array)
{
    int q[6][2], seen = 0;

    ep = epoll_create1(0);
    for (int i = 0; i < 6; i++) {
        pair(q[i]);
        ADD(q[i][0], EPOLLIN, (char)('a' + i));
        deliver(q[i][1], q[i][0], "x");
    }
    for (int i = 0; i < 6; i++) {
        struct epoll_event e;

        must(epoll_wait(ep, &e, 1, 1000) == 1, "epoll_wait");
        seen |= 1 << (e.data.u32 - 'a');
    }
    say("seen %x", (unsigned)seen);
    got(ep, 64, 0);
}

CASE(kernel_descriptors_beside)
{
    int pipes[2], counter = eventfd(0, 0), seen = 0;

    begin();
    must(pipe(pipes) == 0 && write(pipes[1], "x", 1) == 1, "pipe");
    ADD(p[0], EPOLLIN, 'a');
    ADD(pipes[0], EPOLLIN, 'b');
    ADD(counter, EPOLLIN, 'c');
    must(write(counter, &(uint64_t){1}, 8) == 8, "eventfd");
    deliver(p[1], p[0], "x");
    for (int i = 0; i < 3; i++) {
        struct epoll_event e;

        must(epoll_wait(ep, &e, 1, 1000) == 1, "epoll_wait");
        seen |= 1 << (e.data.u32 - 'a');
    }
    say("seen %x", (unsigned)seen);
    got(ep, 10, 0);
}

static void adds(void *unused)
{
    (void)unused;
    ADD(p[0], EPOLLIN, 'a');
}

CASE(added_while_another_sleeps)
{
    struct later l;

    begin();
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

CASE(modified_while_another_sleeps)
{
    struct later l;

    begin();
    ADD(p[0], EPOLLPRI, 'a');
    deliver(p[1], p[0], "x");
    later(&l, mods, NULL);
    got(ep, 10, 10000);
    later_end(&l);
}

CASE(exclusive)
{
    begin();
    ADD(p[0], EPOLLIN | EPOLLEXCLUSIVE, 'a');
    deliver(p[1], p[0], "x");
    got(ep, 10, 0);
    MOD(p[0], EPOLLIN, 'b');
    ADD(p[1], EPOLLIN | EPOLLEXCLUSIVE | EPOLLONESHOT, 'c');
    ADD(p[1], EPOLLIN | EPOLLEXCLUSIVE | EPOLLRDHUP, 'c');
}

CASE(pwait_mask)
{
    struct epoll_event e;
    sigset_t usr1, none;

    begin();
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

CASE(pwait2)
{
    struct timespec t = {0, 1000000}, bad = {0, 2000000000};
    struct epoll_event e;

    begin();
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
    got(ep, 10, 0);
    SHOW(connect(p[0], (struct sockaddr *)&at, len));
    p[1] = accept(l, NULL, NULL);
    board(p[0], p[1]);
    got(ep, 10, 0); /* edges of the bytes that board() moved */
    deliver(p[1], p[0], "x");
    got(ep, 10, 0);
    got(ep, 10, 0);
}

CASE(del_while_ready)
{
    begin();
    ADD(p[0], EPOLLIN, 'a');
    deliver(p[1], p[0], "x");
    DEL(p[0]);
    got(ep, 10, 0);
    ADD(p[0], EPOLLIN, 'b');
    got(ep, 10, 0);
}

CASE(both_ends_in_one)
{
    begin();
    until(p[0], POLLOUT);
    until(p[1], POLLOUT);
    ADD(p[0], EPOLLIN | EPOLLOUT, 'a');
    ADD(p[1], EPOLLIN | EPOLLOUT, 'b');
    got(ep, 10, 0);
    deliver(p[1], p[0], "x");
    got(ep, 10, 0);
    SHOW(close(p[1]));
    until(p[0], POLLRDHUP);
    got(ep, 10, 0);
}

CASE(hup_has_no_level_after_del)
{
    begin();
    ADD(p[0], EPOLLIN, 'a');
    reset(p[1]);
    until(p[0], POLLHUP);
    got(ep, 10, 0);
    DEL(p[0]);
    got(ep, 10, 0);
}

CASE(wakeup_bits)
{
    begin();
    ADD(p[0], EPOLLIN | EPOLLWAKEUP, 'a');
    deliver(p[1], p[0], "x");
    got(ep, 10, 0);
    MOD(p[0], EPOLLIN | EPOLLRDNORM | EPOLLRDBAND, 'b');
    got(ep, 10, 0);
}

CASE(duplicate_of_the_instance)
{
    int d;

    begin();
    d = dup(ep);
    ADD(p[0], EPOLLIN, 'a');
    deliver(p[1], p[0], "x");
    got(d, 10, 0);
    SHOW(close(ep));
    got(d, 10, 0);
    SHOW(ctl(d, EPOLL_CTL_MOD, p[0], EPOLLIN, 'b'));
    got(d, 10, 0);
}
