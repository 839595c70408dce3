/*
 * send.c - what each form of sending gives in each state of the stream: send(2), write(2), tcp(7).
 * The forms that wait are in send_wait.c.
 */
#include "tests/conform/forms_send.h"

#include <linux/errqueue.h>

#define EACH_SFORM(id)   EACH(id, struct sform, sforms, SFORMS)
#define EACH_FLAGGED(id) EACH(id, struct sform, sforms, SFORMS_SOCKET)

static int p[2];

static void got(int fd, size_t n)
{
    char buf[200] = "";

    must(n <= sizeof(buf) && recv(fd, buf, n, MSG_WAITALL) == (ssize_t)n, "got");
    say_bytes("got", buf, (ssize_t)n);
}

EACH_SFORM(data)
{
    pair(p);
    send_by(f, p[0], "hello");
    got(p[1], 5);
    send_by(f, p[1], "and back");
    got(p[0], 8);
    send_by(f, p[0], "1");
    send_by(f, p[0], "22");
    send_by(f, p[0], "333");
    got(p[1], 6);
}

EACH_SFORM(nothing)
{
    pair(p);
    if (strcmp(f->name, "splice") != 0)
        send_by(f, p[0], "");
    send_by(f, p[0], "x");
    got(p[1], 1);
}

EACH_SFORM(after_own_end)
{
    catch_signal(SIGPIPE, 0);
    pair(p);
    SHOW(shutdown(p[0], SHUT_WR));
    send_by(f, p[0], "too late");
    say("SIGPIPE %d", (int)caught);
    send_by(f, p[0], "too late");
    say("SIGPIPE %d", (int)caught);
    SHOW(recv(p[1], (char[1]){0}, 1, 0));
}

EACH_SFORM(to_one_that_has_closed)
{
    catch_signal(SIGPIPE, 0);
    pair(p);
    SHOW(close(p[1]));
    until(p[0], POLLRDHUP);
    send_by(f, p[0], "draws a reset");
    until(p[0], POLLHUP);
    send_by(f, p[0], "after it");
    send_by(f, p[0], "after it");
    say("SIGPIPE %d", (int)caught);
}

EACH_SFORM(after_a_reset)
{
    catch_signal(SIGPIPE, 0);
    pair(p);
    reset(p[1]);
    until(p[0], POLLHUP);
    send_by(f, p[0], "gets the error");
    send_by(f, p[0], "gets EPIPE");
    say("SIGPIPE %d", (int)caught);
}

EACH_SFORM(killed_by_sigpipe)
{
    pair(p);
    SHOW(shutdown(p[0], SHUT_WR));
    send_by(f, p[0], "ends the process");
    say("not reached");
}

EACH_SFORM(sigpipe_ignored)
{
    signal(SIGPIPE, SIG_IGN);
    pair(p);
    SHOW(shutdown(p[0], SHUT_WR));
    send_by(f, p[0], "error only");
}

EACH_SFORM(sigpipe_blocked)
{
    sigset_t set;

    sigemptyset(&set);
    sigaddset(&set, SIGPIPE);
    sigprocmask(SIG_BLOCK, &set, NULL);
    pair(p);
    SHOW(shutdown(p[0], SHUT_WR));
    send_by(f, p[0], "pending");
    sigpending(&set);
    say("pending %d", sigismember(&set, SIGPIPE));
}

EACH_SFORM(to_one_that_has_shut)
{
    pair(p);
    SHOW(shutdown(p[1], SHUT_WR));
    until(p[0], POLLRDHUP);
    send_by(f, p[0], "is still listened to");
    got(p[1], 20);
}

EACH_SFORM(to_one_that_does_not_read)
{
    pair(p);
    SHOW(shutdown(p[1], SHUT_RD));
    send_by(f, p[0], "arrives all the same");
    arrived(p[1], 20);
    got(p[1], 20);
}

EACH_SFORM(again_when_full)
{
    size_t at = 0;

    pair(p);
    fill(p[0], &at);
    nonblock(p[0], true);
    send_by(f, p[0], "no room");
    must(take(p[1], 0, at), "take");
    until(p[0], POLLOUT);
    send_by(f, p[0], "room");
    got(p[1], 4);
}

EACH_SFORM(partly_without_blocking)
{
    static char bytes[8 << 20];
    size_t at = 0;
    ssize_t n;

    for (size_t i = 0; i < sizeof(bytes); i++)
        bytes[i] = (char)pattern(i);
    pair(p);
    nonblock(p[0], true);
    n = f->put(p[0], bytes, sizeof(bytes));
    say("some: %d", n > 0 && (size_t)n < sizeof(bytes));
    at = (size_t)n;
    if (strcmp(f->name, "sendmmsg") != 0)
        must(take(p[1], 0, at), "take");
    else
        say("of two messages, what has gone is not told");
}

EACH_SFORM(before_the_end)
{
    pair(p);
    send_by(f, p[0], "last words");
    SHOW(shutdown(p[0], SHUT_WR));
    got(p[1], 10);
    SHOW(recv(p[1], (char[1]){0}, 1, 0));
}

EACH_SFORM(before_the_close)
{
    pair(p);
    send_by(f, p[0], "last words");
    SHOW(close(p[0]));
    got(p[1], 10);
    SHOW(recv(p[1], (char[1]){0}, 1, 0));
}

EACH_SFORM(not_connected)
{
    signal(SIGPIPE, SIG_IGN);
    send_by(f, socket(AF_INET, SOCK_STREAM, 0), "nobody");
}

EACH_SFORM(listening)
{
    struct sockaddr_storage at;
    socklen_t len;

    signal(SIGPIPE, SIG_IGN);
    send_by(f, listener(&net4, &at, &len), "nobody");
}

EACH_SFORM(closed_descriptor)
{
    pair(p);
    SHOW(close(p[0]));
    send_by(f, p[0], "nobody");
    send_by(f, -1, "nobody");
}

EACH_SFORM(through_a_duplicate)
{
    int d;

    pair(p);
    d = dup(p[0]);
    send_by(f, d, "one");
    SHOW(close(p[0]));
    send_by(f, d, "two");
    got(p[1], 6);
    SHOW(close(d));
    SHOW(recv(p[1], (char[1]){0}, 1, 0));
}

EACH_SFORM(corked)
{
    int on = 1, off = 0;

    pair(p);
    SHOW(setsockopt(p[0], IPPROTO_TCP, TCP_CORK, &on, sizeof(on)));
    send_by(f, p[0], "one ");
    send_by(f, p[0], "two");
    SHOW(setsockopt(p[0], IPPROTO_TCP, TCP_CORK, &off, sizeof(off)));
    got(p[1], 7);
}

EACH_SFORM(without_delay)
{
    int on = 1;

    pair(p);
    SHOW(setsockopt(p[0], IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on)));
    for (int i = 0; i < 20; i++)
        f->put(p[0], "ab", 2);
    got(p[1], 40);
}

/* The forms with flags. */

#define WITH(text, flags) SHOW_AS(#flags, f->put_with(p[0], text, strlen(text), flags))

EACH_FLAGGED(nosignal)
{
    catch_signal(SIGPIPE, 0);
    pair(p);
    SHOW(shutdown(p[0], SHUT_WR));
    WITH("quiet", MSG_NOSIGNAL);
    say("SIGPIPE %d", (int)caught);
}

EACH_FLAGGED(dontwait)
{
    size_t at = 0;

    pair(p);
    WITH("room", MSG_DONTWAIT);
    fill(p[0], &at);
    WITH("none", MSG_DONTWAIT);
    got(p[1], 4);
    must(take(p[1], 0, at), "take");
    until(p[0], POLLOUT);
    WITH("room", MSG_DONTWAIT);
    got(p[1], 4);
}

EACH_FLAGGED(more)
{
    pair(p);
    WITH("one ", MSG_MORE);
    WITH("two ", MSG_MORE);
    WITH("three", 0);
    got(p[1], 13);
    WITH("never pushed, sent by the end", MSG_MORE);
    SHOW(shutdown(p[0], SHUT_WR));
    got(p[1], 29);
}

EACH_FLAGGED(out_of_band)
{
    char byte = '-';

    pair(p);
    WITH("abc", MSG_OOB);
    until(p[1], POLLPRI);
    SHOW(recv(p[1], &byte, 1, MSG_OOB));
    say("%c", byte);
    SHOW(recv(p[1], &byte, 1, MSG_OOB));
    got(p[1], 2);
    WITH("goes on", 0);
    got(p[1], 7);
}

EACH_FLAGGED(end_of_record)
{
    pair(p);
    WITH("eor", MSG_EOR);
    WITH("confirm", MSG_CONFIRM);
    WITH("dontroute", MSG_DONTROUTE);
    got(p[1], 19);
}

EACH_FLAGGED(flags_of_a_receive)
{
    pair(p);
    WITH("all", MSG_WAITALL);
    WITH("peek", MSG_PEEK | MSG_DONTWAIT);
    WITH("trunc", MSG_TRUNC | MSG_CTRUNC);
    got(p[1], 12);
}

EACH_FLAGGED(zero_copy_not_asked_for)
{
    pair(p);
    WITH("zero copy", MSG_ZEROCOPY);
    got(p[1], 9);
}

/* The kernel's word that the bytes of so many sends may be written over again. */
static void sends_over(int fd)
{
    union {
        char space[256];
        struct cmsghdr first;
    } control;
    struct msghdr m = {.msg_control = &control, .msg_controllen = sizeof(control)};
    struct sock_extended_err e = {0};

    say_events("poll", until(fd, POLLERR));
    SHOW(recvmsg(fd, &m, MSG_ERRQUEUE));
    must(CMSG_FIRSTHDR(&m) != NULL, "a message");
    memcpy(&e, CMSG_DATA(&control.first), sizeof(e));
    say("errno %u origin %u, from %u to %u", e.ee_errno, e.ee_origin, e.ee_info, e.ee_data);
}

EACH_FLAGGED(zero_copy)
{
    const int on = 1;

    pair(p);
    SHOW(setsockopt(p[0], SOL_SOCKET, SO_ZEROCOPY, &on, sizeof(on)));
    WITH("as ever", 0);
    got(p[1], 7);
    WITH("zero copy", MSG_ZEROCOPY);
    got(p[1], 9);
    sends_over(p[0]);
    WITH("again", MSG_ZEROCOPY | MSG_DONTWAIT);
    WITH("and more", 0);
    got(p[1], 13);
    sends_over(p[0]);
    deliver(p[1], p[0], "back");
    got(p[0], 4);
}

EACH_FLAGGED(fast_open_when_connected)
{
    pair(p);
    WITH("fast open", MSG_FASTOPEN | MSG_NOSIGNAL);
    WITH("goes on", 0);
}
