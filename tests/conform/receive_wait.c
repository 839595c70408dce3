/*
 * receive_wait.c - receiving that has to wait, and what ends it: bytes, the end, a
 * reset, time, a signal.
 */
#include "tests/conform/forms_recv.h"

#include <sys/syscall.h>

#define EACH_RFORM(id) EACH(id, struct rform, rforms, RFORMS)

static int p[2];
static int sleeper;

static void sends(void *text)
{
    must(send(p[0], text, strlen(text), MSG_NOSIGNAL) > 0, "send");
}

static void shuts(void *unused)
{
    (void)unused;
    shutdown(p[0], SHUT_WR);
}

static void closes(void *unused)
{
    (void)unused;
    close(p[0]);
}

static void resets(void *unused)
{
    (void)unused;
    reset(p[0]);
}

static void shuts_here(void *unused)
{
    (void)unused;
    shutdown(p[1], SHUT_RD);
}

static void signals(void *then)
{
    syscall(SYS_tgkill, getpid(), sleeper, SIGUSR1);
    if (!then)
        return;
    until_caught();
    asleep(sleeper);
    sends(then);
}

static void waits(const struct rform *f, void (*fn)(void *), const char *arg)
{
    char text[64];
    struct later l;

    sleeper = my_tid();
    if (arg)
        snprintf(text, sizeof(text), "%s", arg);
    later(&l, fn, arg ? text : NULL);
    take_by(f, p[1], 100);
    later_end(&l);
}

EACH_RFORM(for_bytes)
{
    pair(p);
    waits(f, sends, "here they are");
    waits(f, sends, "and more");
}

EACH_RFORM(for_the_end)
{
    pair(p);
    waits(f, shuts, NULL);
    take_by(f, p[1], 1);
}

EACH_RFORM(for_a_close)
{
    pair(p);
    waits(f, closes, NULL);
    take_by(f, p[1], 1);
}

EACH_RFORM(for_a_reset)
{
    pair(p);
    waits(f, resets, NULL);
    take_by(f, p[1], 1);
}

EACH_RFORM(shut_from_another_thread)
{
    pair(p);
    waits(f, shuts_here, NULL);
    take_by(f, p[1], 1);
}

EACH_RFORM(times_out)
{
    struct timeval tv = {0, 30000}, was = {0, 0};
    socklen_t len = sizeof(was);

    pair(p);
    SHOW(setsockopt(p[1], SOL_SOCKET, SO_RCVTIMEO, &tv, sizeof(tv)));
    take_by(f, p[1], 100);
    take_by(f, p[1], 100);
    SHOW(getsockopt(p[1], SOL_SOCKET, SO_RCVTIMEO, &was, &len));
    say("%ld s, %d", (long)was.tv_sec, was.tv_usec > 0);
    tv.tv_sec = 20;
    SHOW(setsockopt(p[1], SOL_SOCKET, SO_RCVTIMEO, &tv, sizeof(tv)));
    waits(f, sends, "in time");
}

EACH_RFORM(interrupted)
{
    pair(p);
    catch_signal(SIGUSR1, 0);
    waits(f, signals, NULL);
    say("caught %d", (int)caught);
    deliver(p[0], p[1], "goes on");
    take_by(f, p[1], 100);
}

EACH_RFORM(restarted)
{
    pair(p);
    catch_signal(SIGUSR1, SA_RESTART);
    waits(f, signals, "after the signal");
    say("caught %d", (int)caught);
}

/* signal(7): with a time-out it is never restarted. */
EACH_RFORM(not_restarted_with_a_time_out)
{
    struct timeval tv = {20, 0};

    pair(p);
    SHOW(setsockopt(p[1], SOL_SOCKET, SO_RCVTIMEO, &tv, sizeof(tv)));
    catch_signal(SIGUSR1, SA_RESTART);
    waits(f, signals, NULL);
    say("caught %d", (int)caught);
}

/* A call keeps the mode and the time-out that it began with, also if its stream leaves its
 * rail meanwhile. */

static void leaves(void)
{
    int on = 1;

    must(setsockopt(p[1], SOL_SOCKET, SO_OOBINLINE, &on, sizeof(on)) == 0, "SO_OOBINLINE");
    asleep(sleeper);
}

static void nonblocking_and_leaves(void *text)
{
    nonblock(p[1], true);
    leaves();
    sends(text);
}

static void nonblocking(void *text)
{
    leaves();
    nonblock(p[1], true);
    sends(text);
}

static void short_of_time_and_leaves(void *text)
{
    struct timeval tv = {0, 50000};

    must(setsockopt(p[1], SOL_SOCKET, SO_RCVTIMEO, &tv, sizeof(tv)) == 0, "SO_RCVTIMEO");
    leaves();
    timed_out(&tv);
    sends(text);
}

EACH_RFORM(nonblocking_meanwhile)
{
    pair(p);
    waits(f, nonblocking_and_leaves, "all the same");
    take_by(f, p[1], 100);
}

EACH_RFORM(nonblocking_after_it_has_left)
{
    pair(p);
    waits(f, nonblocking, "all the same");
    take_by(f, p[1], 100);
}

EACH_RFORM(short_of_time_meanwhile)
{
    pair(p);
    waits(f, short_of_time_and_leaves, "all the same");
    take_by(f, p[1], 100);
}

/* MSG_WAITALL: what it waits for, and what it gives when the wait ends early. */

/* The sleeper has all that was sent, and sleeps again or has returned. */
static void has_taken_it(void)
{
    taken(p[0], p[1]);
    asleep(sleeper);
}

static void sends_in_pieces(void *unused)
{
    (void)unused;
    for (int i = 0; i < 5; i++) {
        sends("12345");
        has_taken_it();
    }
}

static void sends_pieces_in_time(void *unused)
{
    (void)unused;
    for (int i = 0; i < 5; i++)
        sends("12345");
}

static void sends_some_then_ends(void *unused)
{
    (void)unused;
    sends("12345");
    has_taken_it();
    shutdown(p[0], SHUT_WR);
}

static void sends_some_then_signals(void *unused)
{
    (void)unused;
    sends("12345");
    has_taken_it();
    signals(NULL);
}

static void sends_some_then_resets(void *unused)
{
    (void)unused;
    sends("12345");
    has_taken_it();
    reset(p[0]);
}

static void waits_for_all(const struct rform *f, void (*fn)(void *), size_t n)
{
    char buf[100] = "";
    struct later l;
    ssize_t got;

    sleeper = my_tid();
    later(&l, fn, NULL);
    errno = CLEAN;
    got = f->get_with(p[1], buf, n, MSG_WAITALL);
    show("MSG_WAITALL", got, errno);
    say_bytes(" ", buf, got);
    later_end(&l);
}

#define EACH_FLAGGED(id) EACH(id, struct rform, rforms + 3, 4)

EACH_FLAGGED(waitall_in_pieces)
{
    pair(p);
    waits_for_all(f, sends_in_pieces, 25);
}

EACH_FLAGGED(waitall_ends)
{
    pair(p);
    waits_for_all(f, sends_some_then_ends, 25);
    take_by(f, p[1], 1);
}

EACH_FLAGGED(waitall_interrupted)
{
    pair(p);
    catch_signal(SIGUSR1, 0);
    waits_for_all(f, sends_some_then_signals, 25);
    say("caught %d", (int)caught);
}

/* Bytes are not waited for anew. */
EACH_FLAGGED(waitall_interrupted_with_some)
{
    pair(p);
    catch_signal(SIGUSR1, SA_RESTART);
    waits_for_all(f, sends_some_then_signals, 25);
    say("caught %d", (int)caught);
}

EACH_FLAGGED(waitall_reset)
{
    pair(p);
    waits_for_all(f, sends_some_then_resets, 25);
    take_by(f, p[1], 1);
    take_by(f, p[1], 1);
}

EACH_FLAGGED(waitall_times_out)
{
    struct timeval tv = {1, 0};

    pair(p);
    SHOW(setsockopt(p[1], SOL_SOCKET, SO_RCVTIMEO, &tv, sizeof(tv)));
    deliver(p[0], p[1], "12345");
    waits_for_all(f, sends_pieces_in_time, 60);
    take_by(f, p[1], 1);
}

/* A peek waits as well. */
EACH_FLAGGED(peek_waits)
{
    char buf[100] = "";
    struct later l;

    pair(p);
    sleeper = my_tid();
    later(&l, sends, "seen");
    SHOW_AS("MSG_PEEK", f->get_with(p[1], buf, 100, MSG_PEEK));
    say_bytes(" ", buf, 4);
    later_end(&l);
    take_by(f, p[1], 100);
}
