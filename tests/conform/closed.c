/*
 * closed.c - who sleeps in poll or select on two connections while another thread closes one of
 * them. The kernel wakes nobody for that: poll(2) and select(2) leave it open, and Linux looks at
 * the number again when the call ends, or something else has come.
 */
#include "tests/conform/kit.h"

#include <sys/select.h>
#include <sys/syscall.h>
#include <time.h>

enum { BOTH = 2, MS = 400 };

static int p[2], q[2];
static int sleeper;

/* What each of the two is ready for, as POLL*; waits ms for either. A negative
 * result is an error. */
struct wform {
    const char *name;
    int (*ask)(const int fd[BOTH], int ms, int got[BOTH]);
};

static int by_poll(const int fd[BOTH], int ms, int got[BOTH])
{
    struct pollfd of[BOTH] = {{fd[0], POLLIN, 0}, {fd[1], POLLIN, 0}};
    int n = poll(of, BOTH, ms);

    for (int i = 0; i < BOTH; i++)
        got[i] = of[i].revents;
    return n;
}

static int by_ppoll(const int fd[BOTH], int ms, int got[BOTH])
{
    struct pollfd of[BOTH] = {{fd[0], POLLIN, 0}, {fd[1], POLLIN, 0}};
    struct timespec t = {ms / 1000, ms % 1000 * 1000000l};
    sigset_t none;
    int n;

    sigemptyset(&none);
    n = ppoll(of, BOTH, ms < 0 ? NULL : &t, &none);
    for (int i = 0; i < BOTH; i++)
        got[i] = of[i].revents;
    return n;
}

static void sets_of(fd_set s[2], const int fd[BOTH])
{
    for (int i = 0; i < 2; i++) {
        FD_ZERO(&s[i]);
        for (int j = 0; j < BOTH; j++)
            FD_SET(fd[j], &s[i]);
    }
}

static void events_of(const fd_set s[2], const int fd[BOTH], int got[BOTH])
{
    for (int i = 0; i < BOTH; i++)
        got[i] = (FD_ISSET(fd[i], &s[0]) ? POLLIN : 0) | (FD_ISSET(fd[i], &s[1]) ? POLLPRI : 0);
}

static int by_select(const int fd[BOTH], int ms, int got[BOTH])
{
    struct timeval t = {ms / 1000, ms % 1000 * 1000};
    fd_set s[2];
    int n;

    sets_of(s, fd);
    n = select((fd[0] > fd[1] ? fd[0] : fd[1]) + 1, &s[0], NULL, &s[1], ms < 0 ? NULL : &t);
    events_of(s, fd, got);
    return n;
}

static int by_pselect(const int fd[BOTH], int ms, int got[BOTH])
{
    struct timespec t = {ms / 1000, ms % 1000 * 1000000l};
    fd_set s[2];
    int n;

    sets_of(s, fd);
    n = pselect((fd[0] > fd[1] ? fd[0] : fd[1]) + 1, &s[0], NULL, &s[1], ms < 0 ? NULL : &t, NULL);
    events_of(s, fd, got);
    return n;
}

static const struct wform wforms[] = {
    {"poll", by_poll},
    {"ppoll", by_ppoll},
    {"select", by_select},
    {"pselect", by_pselect},
};

#define EACH_WFORM(id) EACH(id, struct wform, wforms, COUNT(wforms))

static void both(void)
{
    pair(p);
    pair(q);
}

static int waits_for(const struct wform *f, const int fd[BOTH], void (*fn)(void *), int ms,
                     int got[BOTH])
{
    struct later l;
    int n, error;

    sleeper = my_tid();
    later(&l, fn, NULL);
    errno = CLEAN;
    n = f->ask(fd, ms, got);
    error = errno;
    later_end(&l);
    errno = error;
    return n;
}

static void waits(const struct wform *f, void (*fn)(void *), int ms)
{
    int fd[BOTH] = {p[1], q[1]}, got[BOTH], n = waits_for(f, fd, fn, ms, got);

    show(f->name, n, errno);
    if (n < 0)
        return;
    say_events("closed", got[0]);
    say_events("the other", got[1]);
}

/* What the one is that was closed depends on who comes first. */
static void is_woken(const struct wform *f, void (*fn)(void *))
{
    int fd[BOTH] = {p[1], q[1]}, got[BOTH], n = waits_for(f, fd, fn, PATIENCE, got);

    say("%d: %d %d", n > 0, got[0] != 0, got[1] != 0);
}

static void closes(void *unused)
{
    (void)unused;
    must(close(p[1]) == 0, "close");
    asleep(sleeper);
}

static void closes_then_sends(void *unused)
{
    closes(unused);
    must(write(q[0], "x", 1) == 1, "write");
}

EACH_WFORM(until_the_other_is_ready)
{
    both();
    waits(f, closes_then_sends, -1);
}

EACH_WFORM(until_the_time_is_over)
{
    struct timespec before, after;

    both();
    clock_gettime(CLOCK_MONOTONIC, &before);
    waits(f, closes, MS);
    clock_gettime(CLOCK_MONOTONIC, &after);
    say("too early: %d",
        (after.tv_sec - before.tv_sec) * 1000 + (after.tv_nsec - before.tv_nsec) / 1000000 <
            MS - 1);
}

static void closes_then_signals(void *unused)
{
    closes(unused);
    syscall(SYS_tgkill, getpid(), sleeper, SIGUSR1);
}

/* The number is looked at before the signal is. */
EACH_WFORM(until_a_signal)
{
    both();
    catch_signal(SIGUSR1, SA_RESTART);
    waits(f, closes_then_signals, -1);
    say("caught %d", (int)caught);
}

static void closes_both(void *unused)
{
    closes(unused);
    must(close(q[1]) == 0, "close");
}

EACH_WFORM(both_of_them)
{
    both();
    waits(f, closes_both, MS);
}

static void replaces(void *unused)
{
    int null = open("/dev/null", O_RDONLY);

    (void)unused;
    must(null >= 0 && dup2(null, p[1]) == p[1], "dup2");
}

EACH_WFORM(replaced)
{
    both();
    waits(f, replaces, MS);
}

/* By another connection, which has something to read. */
static void replaces_by_another(void *unused)
{
    int other[2];

    (void)unused;
    pair(other);
    must(dup2(other[1], p[1]) == p[1] && write(other[0], "x", 1) == 1, "another one");
}

EACH_WFORM(replaced_by_another)
{
    both();
    waits(f, replaces_by_another, 3 * MS);
}

/* Woken for what came before the close, the thread returns, also if it looks only after it. */
static void shuts_and_closes(void *unused)
{
    (void)unused;
    must(shutdown(p[1], SHUT_RDWR) == 0 && close(p[1]) == 0, "close");
}

EACH_WFORM(shut_before)
{
    both();
    is_woken(f, shuts_and_closes);
}

static void is_sent_and_closes(void *unused)
{
    (void)unused;
    deliver(p[0], p[1], "unread");
    must(close(p[1]) == 0, "close");
}

EACH_WFORM(unread_before)
{
    both();
    is_woken(f, is_sent_and_closes);
}

static void hears_the_end_and_closes(void *unused)
{
    char byte;

    (void)unused;
    must(shutdown(p[0], SHUT_WR) == 0 && recv(p[1], &byte, 1, 0) == 0 && close(p[1]) == 0, "close");
}

EACH_WFORM(ended_before)
{
    both();
    is_woken(f, hears_the_end_and_closes);
}

/* Not open when the call began. */
EACH_WFORM(closed_before)
{
    int fd[BOTH], got[BOTH], n;

    both();
    fd[0] = p[1];
    fd[1] = q[1];
    must(close(p[1]) == 0, "close");
    errno = CLEAN;
    n = f->ask(fd, MS, got);
    show(f->name, n, errno);
    say_events("closed", got[0]);
    say_events("the other", got[1]);
}

/* Beside what is the kernel's. */
EACH_WFORM(beside_a_pipe)
{
    int fd[BOTH], got[BOTH], way[2], n;

    pair(p);
    pair(q); /* closes_then_sends */
    must(pipe(way) == 0 && close(q[0]) == 0, "pipe");
    fd[0] = p[1];
    fd[1] = way[0];
    q[0] = way[1];
    n = waits_for(f, fd, closes_then_sends, -1, got);
    show(f->name, n, errno);
    say_events("closed", got[0]);
    say_events("the pipe", got[1]);
}
