/*
 * ready.c - what a stream is ready for in each of its states, asked in each form: poll(2),
 * select(2), epoll(7), tcp(7). Each state is waited for before it is asked about.
 */
#include "tests/conform/forms_ready.h"

#define EACH_QFORM(id) EACH(id, struct qform, qforms, QFORMS)

static int p[2];

EACH_QFORM(idle)
{
    pair(p);
    until(p[0], POLLOUT);
    ready_by(f, p[0], ALL);
    until(p[1], POLLOUT);
    ready_by(f, p[1], ALL);
    ready_by(f, p[1], POLLIN);
    ready_by(f, p[1], 0);
}

EACH_QFORM(data)
{
    pair(p);
    deliver(p[0], p[1], "x");
    until(p[1], POLLIN | POLLOUT);
    ready_by(f, p[1], ALL);
    ready_by(f, p[1], POLLIN);
    ready_by(f, p[1], POLLOUT);
    ready_by(f, p[1], POLLRDHUP | POLLPRI);
    must(take(p[1], 0, 0), "nothing");
    ready_by(f, p[1], POLLIN);
}

EACH_QFORM(data_taken)
{
    char buf[10];

    pair(p);
    deliver(p[0], p[1], "0123456789");
    SHOW(read(p[1], buf, 4));
    ready_by(f, p[1], POLLIN);
    SHOW(read(p[1], buf, 6));
    ready_by(f, p[1], POLLIN);
    deliver(p[0], p[1], "again");
    ready_by(f, p[1], POLLIN);
}

EACH_QFORM(data_peeked)
{
    char buf[10];

    pair(p);
    deliver(p[0], p[1], "0123456789");
    SHOW(recv(p[1], buf, 10, MSG_PEEK));
    ready_by(f, p[1], POLLIN);
}

EACH_QFORM(peer_has_ended)
{
    pair(p);
    SHOW(shutdown(p[0], SHUT_WR));
    until(p[1], POLLIN | POLLRDHUP | POLLOUT);
    ready_by(f, p[1], ALL);
    ready_by(f, p[1], POLLIN);
    ready_by(f, p[1], POLLRDHUP);
    ready_by(f, p[1], 0);
    until(p[0], POLLOUT);
    ready_by(f, p[0], ALL);
}

EACH_QFORM(peer_has_ended_with_data)
{
    pair(p);
    deliver(p[0], p[1], "the last");
    SHOW(shutdown(p[0], SHUT_WR));
    until(p[1], POLLIN | POLLRDHUP | POLLOUT);
    ready_by(f, p[1], ALL);
    must(take(p[1], 0, 0), "nothing");
}

EACH_QFORM(peer_has_closed)
{
    pair(p);
    SHOW(close(p[0]));
    until(p[1], POLLIN | POLLRDHUP | POLLOUT);
    ready_by(f, p[1], ALL);
}

EACH_QFORM(both_have_ended)
{
    pair(p);
    SHOW(shutdown(p[0], SHUT_WR));
    SHOW(shutdown(p[1], SHUT_WR));
    until(p[1], POLLIN | POLLHUP);
    ready_by(f, p[1], ALL);
    ready_by(f, p[1], 0);
    until(p[0], POLLIN | POLLHUP);
    ready_by(f, p[0], ALL);
}

EACH_QFORM(closed_after_own_end)
{
    pair(p);
    SHOW(shutdown(p[1], SHUT_WR));
    SHOW(close(p[0]));
    until(p[1], POLLIN | POLLHUP);
    ready_by(f, p[1], ALL);
}

EACH_QFORM(own_end)
{
    pair(p);
    SHOW(shutdown(p[0], SHUT_WR));
    until(p[0], POLLOUT);
    ready_by(f, p[0], ALL);
}

EACH_QFORM(shut_for_reading)
{
    pair(p);
    SHOW(shutdown(p[0], SHUT_RD));
    until(p[0], POLLIN | POLLOUT);
    ready_by(f, p[0], ALL);
    ready_by(f, p[0], POLLIN);
}

EACH_QFORM(shut_both_ways)
{
    pair(p);
    SHOW(shutdown(p[0], SHUT_RDWR));
    until(p[0], POLLIN | POLLHUP);
    ready_by(f, p[0], ALL);
    until(p[1], POLLIN | POLLRDHUP | POLLOUT);
    ready_by(f, p[1], ALL);
}

EACH_QFORM(after_a_reset)
{
    char byte;

    pair(p);
    reset(p[0]);
    until(p[1], POLLHUP | POLLERR);
    ready_by(f, p[1], ALL);
    ready_by(f, p[1], 0);
    SHOW(read(p[1], &byte, 1));
    ready_by(f, p[1], ALL);
}

EACH_QFORM(after_a_reset_with_data)
{
    char byte;

    pair(p);
    deliver(p[0], p[1], "x");
    reset(p[0]);
    until(p[1], POLLHUP | POLLERR);
    ready_by(f, p[1], ALL);
    SHOW(read(p[1], &byte, 1));
    SHOW(read(p[1], &byte, 1));
    ready_by(f, p[1], ALL);
}

EACH_QFORM(full)
{
    size_t at = 0;

    pair(p);
    fill(p[0], &at);
    ready_by(f, p[0], ALL);
    ready_by(f, p[0], POLLOUT);
    must(take(p[1], 0, at), "take");
    until(p[0], POLLOUT);
    ready_by(f, p[0], ALL);
}

EACH_QFORM(full_and_ended)
{
    size_t at = 0;

    pair(p);
    fill(p[0], &at);
    SHOW(shutdown(p[1], SHUT_WR));
    until(p[0], POLLRDHUP);
    ready_by(f, p[0], ALL);
    must(take(p[1], 0, at), "take");
}

EACH_QFORM(out_of_band)
{
    char byte;

    pair(p);
    SHOW(send(p[0], "u", 1, MSG_OOB));
    until(p[1], POLLPRI);
    ready_by(f, p[1], ALL);
    SHOW(recv(p[1], &byte, 1, MSG_OOB));
    ready_by(f, p[1], ALL);
}

EACH_QFORM(not_connected)
{
    int fd = socket(AF_INET, SOCK_STREAM, 0);

    ready_by(f, fd, ALL);
    ready_by(f, fd, 0);
}

EACH_QFORM(listening)
{
    struct sockaddr_storage at;
    socklen_t len;
    int l = listener(&net4, &at, &len), c = socket(AF_INET, SOCK_STREAM, 0), s;

    ready_by(f, l, ALL);
    SHOW(connect(c, (struct sockaddr *)&at, len));
    until(l, POLLIN);
    ready_by(f, l, ALL);
    s = accept(l, NULL, NULL);
    ready_by(f, l, ALL);
    board(c, s);
    ready_by(f, l, ALL);
}

EACH_QFORM(refused)
{
    struct sockaddr_storage at;
    socklen_t len;
    int l = listener(&net4, &at, &len), c = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);

    close(l);
    say("%d", connect(c, (struct sockaddr *)&at, len));
    until(c, POLLERR | POLLHUP);
    ready_by(f, c, ALL);
}

EACH_QFORM(closed_descriptor)
{
    pair(p);
    SHOW(close(p[0]));
    ready_by(f, p[0], ALL);
}

static void sends(void *unused)
{
    (void)unused;
    must(write(p[0], "x", 1) == 1, "write");
}

static void ends(void *unused)
{
    (void)unused;
    shutdown(p[0], SHUT_WR);
}

static void resets(void *unused)
{
    (void)unused;
    reset(p[0]);
}

static size_t filled;

static void takes(void *unused)
{
    (void)unused;
    must(take(p[0], 0, filled), "take");
}

/* Asks and waits, while another thread makes it so once this one sleeps. */
static void waits(const struct qform *f, int events, void (*fn)(void *), int ms)
{
    struct later l;
    int got;

    later(&l, fn, NULL);
    got = f->ask(p[1], events, ms);
    later_end(&l);
    say_events("woken by", got);
}

EACH_QFORM(waits_for_data)
{
    char byte;

    pair(p);
    waits(f, POLLIN, sends, -1);
    SHOW(read(p[1], &byte, 1));
    waits(f, POLLIN, sends, 20000);
}

EACH_QFORM(waits_for_the_end)
{
    pair(p);
    waits(f, POLLIN, ends, -1);
}

EACH_QFORM(waits_for_rdhup_alone)
{
    pair(p);
    if (strstr(f->name, "select")) {
        say("select cannot ask for it");
        return;
    }
    waits(f, POLLRDHUP, ends, 20000);
}

EACH_QFORM(waits_for_a_reset)
{
    pair(p);
    waits(f, POLLIN, resets, -1);
}

EACH_QFORM(waits_for_room)
{
    pair(p);
    filled = 0;
    fill(p[1], &filled);
    waits(f, POLLOUT, takes, -1);
}

EACH_QFORM(waits_in_vain)
{
    pair(p);
    errno = CLEAN;
    say_events("nothing", f->ask(p[1], POLLIN, 30));
    say("errno moved: %d", errno != CLEAN);
}

static void signals(void *thread)
{
    pthread_kill((pthread_t)(uintptr_t)thread, SIGUSR1);
}

EACH_QFORM(interrupted)
{
    struct later l;
    int got, error;

    pair(p);
    catch_signal(SIGUSR1, SA_RESTART);
    later(&l, signals, (void *)(uintptr_t)pthread_self());
    got = f->ask(p[1], POLLIN, -1);
    error = errno;
    later_end(&l);
    show(f->name, got, error);
    say("caught %d", (int)caught);
}
