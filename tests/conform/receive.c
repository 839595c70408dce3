/*
 * receive.c - what each form of receiving gives in each state of the stream: recv(2), read(2),
 * tcp(7). With flags: receive_flags.c; the forms that wait are in receive_wait.c.
 */
#include "tests/conform/forms_recv.h"

#define EACH_RFORM(id) EACH(id, struct rform, rforms, RFORMS)

EACH_RFORM(data)
{
    int p[2];

    pair(p);
    deliver(p[0], p[1], "hello");
    take_by(f, p[1], 100);
    deliver(p[1], p[0], "and back");
    take_by(f, p[0], 100);
}

EACH_RFORM(short_of_what_is_there)
{
    int p[2];

    pair(p);
    if (strcmp(f->name, "recvmmsg2") == 0) {
        say("takes more than it says here");
        return;
    }
    deliver(p[0], p[1], "abcdefghij");
    take_by(f, p[1], 1);
    take_by(f, p[1], 4);
    deliver(p[0], p[1], "kl");
    take_by(f, p[1], 100);
}

EACH_RFORM(two_writes_are_one_stream)
{
    int p[2];

    pair(p);
    deliver(p[0], p[1], "one,");
    deliver(p[0], p[1], "two,");
    deliver(p[0], p[1], "three");
    take_by(f, p[1], 100);
}

EACH_RFORM(end_of_stream)
{
    int p[2];

    pair(p);
    SHOW(shutdown(p[0], SHUT_WR));
    take_by(f, p[1], 100);
    take_by(f, p[1], 100);
    deliver(p[1], p[0], "still open this way");
    take_by(f, p[0], 100);
}

EACH_RFORM(end_after_data)
{
    int p[2];

    pair(p);
    deliver(p[0], p[1], "the last words");
    SHOW(shutdown(p[0], SHUT_WR));
    until(p[1], POLLRDHUP);
    take_by(f, p[1], 100);
    take_by(f, p[1], 100);
}

EACH_RFORM(end_by_close)
{
    int p[2];

    pair(p);
    deliver(p[0], p[1], "the last words");
    SHOW(close(p[0]));
    until(p[1], POLLRDHUP);
    take_by(f, p[1], 100);
    take_by(f, p[1], 100);
}

EACH_RFORM(again)
{
    int p[2];

    pair(p);
    nonblock(p[1], true);
    take_by(f, p[1], 100);
    deliver(p[0], p[1], "now");
    take_by(f, p[1], 100);
    take_by(f, p[1], 100);
    nonblock(p[1], false);
}

EACH_RFORM(reset_once)
{
    int p[2];

    pair(p);
    reset(p[0]);
    until(p[1], POLLHUP);
    take_by(f, p[1], 100);
    take_by(f, p[1], 100);
}

/* TCP throws away what has arrived when a reset comes. */
EACH_RFORM(reset_after_data)
{
    int p[2];

    pair(p);
    deliver(p[0], p[1], "never to be read");
    reset(p[0]);
    until(p[1], POLLHUP);
    take_by(f, p[1], 100);
    take_by(f, p[1], 100);
}

EACH_RFORM(reset_by_unread_data)
{
    int p[2];

    pair(p);
    deliver(p[1], p[0], "unread by the one that closes");
    SHOW(close(p[0]));
    until(p[1], POLLHUP);
    take_by(f, p[1], 100);
    take_by(f, p[1], 100);
}

EACH_RFORM(shut_for_reading)
{
    int p[2];

    pair(p);
    SHOW(shutdown(p[1], SHUT_RD));
    take_by(f, p[1], 100);
    deliver(p[0], p[1], "Linux delivers it all the same");
    take_by(f, p[1], 100);
    take_by(f, p[1], 100);
}

EACH_RFORM(shut_for_reading_with_data)
{
    int p[2];

    pair(p);
    deliver(p[0], p[1], "was there before");
    SHOW(shutdown(p[1], SHUT_RD));
    take_by(f, p[1], 100);
    take_by(f, p[1], 100);
}

EACH_RFORM(shut_both_ways_with_data)
{
    int p[2];

    pair(p);
    deliver(p[0], p[1], "was there before");
    SHOW(shutdown(p[1], SHUT_RDWR));
    until(p[0], POLLRDHUP);
    take_by(f, p[1], 5);
    SHOW(close(p[0]));
    take_by(f, p[1], 100);
    take_by(f, p[1], 100);
}

/* What lies there is there, also where it could not come a second time. */
EACH_RFORM(shut_both_ways_with_much)
{
    enum { MUCH = 20000 };
    static char text[MUCH + 1], buf[5000];
    int p[2], least = 1;
    ssize_t n;
    size_t at = 0;

    for (int i = 0; i < MUCH; i++)
        text[i] = (char)('a' + i % 23);
    pair(p);
    deliver(p[0], p[1], text);
    must(setsockopt(p[0], SOL_SOCKET, SO_SNDBUF, &least, sizeof(least)) == 0, "SO_SNDBUF");
    must(setsockopt(p[1], SOL_SOCKET, SO_RCVBUF, &least, sizeof(least)) == 0, "SO_RCVBUF");
    SHOW(shutdown(p[1], SHUT_RDWR));
    until(p[0], POLLRDHUP);
    while ((n = f->get(p[1], buf, strcmp(f->name, "recvmmsg2") == 0 ? 1 : sizeof(buf))) > 0) {
        for (ssize_t i = 0; i < n && strcmp(f->name, "recvmmsg2") != 0; i++)
            must(buf[i] == text[at + (size_t)i], "byte");
        at += (size_t)n;
    }
    say("all %zu, then %zd", at, n);
}

EACH_RFORM(shut_for_writing)
{
    int p[2];

    pair(p);
    SHOW(shutdown(p[1], SHUT_WR));
    deliver(p[0], p[1], "the other way");
    take_by(f, p[1], 100);
    SHOW(close(p[0]));
    take_by(f, p[1], 100);
}

EACH_RFORM(no_bytes_wanted)
{
    int p[2];

    pair(p);
    deliver(p[0], p[1], "x");
    if (strcmp(f->name, "recvmmsg2") == 0) {
        say("would take the byte with its second message");
        return;
    }
    take_by(f, p[1], 0);
    take_by(f, p[1], 10);
}

EACH_RFORM(not_connected)
{
    int fd = socket(AF_INET, SOCK_STREAM, 0);

    take_by(f, fd, 10);
}

EACH_RFORM(listening)
{
    struct sockaddr_storage at;
    socklen_t len;

    take_by(f, listener(&net4, &at, &len), 10);
}

EACH_RFORM(closed_descriptor)
{
    int p[2];

    pair(p);
    deliver(p[0], p[1], "x");
    SHOW(close(p[1]));
    take_by(f, p[1], 10);
    take_by(f, -1, 10);
}

EACH_RFORM(through_a_duplicate)
{
    int p[2], d;

    pair(p);
    d = dup(p[1]);
    deliver(p[0], p[1], "0123456789");
    take_by(f, d, strcmp(f->name, "recvmmsg2") == 0 ? 100 : 4);
    SHOW(close(p[1]));
    deliver(p[0], d, "abc");
    take_by(f, d, 100);
}

EACH_RFORM(much)
{
    size_t at = 0, want = 300000;
    unsigned char buf[5000];
    int p[2], n;

    pair(p);
    nonblock(p[0], true);
    for (size_t sent = 0; at < want;) {
        while (sent < want) {
            for (size_t i = 0; i < sizeof(buf); i++)
                buf[i] = pattern(sent + i);
            n = (int)send(p[0], buf, sizeof(buf) < want - sent ? sizeof(buf) : want - sent, 0);
            if (n <= 0)
                break;
            sent += (size_t)n;
        }
        if (strcmp(f->name, "recvmmsg2") == 0) { /* only the first message is looked at */
            n = (int)recv(p[1], buf, sizeof(buf), 0);
        } else {
            n = (int)f->get(p[1], buf, 1 + at % sizeof(buf));
        }
        must(n > 0, "much");
        for (int i = 0; i < n; i++)
            must(buf[i] == pattern(at + (size_t)i), "byte");
        at += (size_t)n;
    }
    say("all %zu", at);
}

/* Four messages of three bytes each. */
static void show_several(int fd, int flags, struct timespec *limit)
{
    char bytes[4][4] = {{0}};
    struct iovec v[4];
    struct mmsghdr m[4] = {{.msg_len = 0}};
    long n;

    for (int i = 0; i < 4; i++) {
        v[i] = (struct iovec){bytes[i], 3};
        m[i].msg_hdr.msg_iov = &v[i];
        m[i].msg_hdr.msg_iovlen = 1;
        m[i].msg_len = 77;
    }
    n = SHOW_AS("recvmmsg", recvmmsg(fd, m, 4, flags, limit));
    for (int i = 0; i < n; i++)
        say("%u [%s]", m[i].msg_len, bytes[i]);
}

static void several_ended(int from, int fd)
{
    SHOW(shutdown(from, SHUT_WR));
    until(fd, POLLRDHUP);
}

static void several_reset(int from, int fd)
{
    reset(from);
    until(fd, POLLHUP);
}

static void several_shut(int from, int fd)
{
    (void)from;
    SHOW(shutdown(fd, SHUT_RD));
}

static const struct several {
    const char *name;
    void (*then)(int from, int fd);
} several[] = {
    {"open", NULL}, {"ended", several_ended}, {"reset", several_reset}, {"shut", several_shut}};

EACH(several_messages, struct several, several, COUNT(several))
{
    int p[2];

    pair(p);
    deliver(p[0], p[1], "abcd");
    deliver(p[0], p[1], "efgh");
    if (f->then)
        f->then(p[0], p[1]);
    show_several(p[1], MSG_WAITFORONE, NULL);
    show_several(p[1], MSG_DONTWAIT, NULL);
    show_several(p[1], MSG_DONTWAIT, NULL);
}

CASE(several_messages_and_no_time)
{
    struct timespec none = {0}, wrong = {0, 1000000000};
    int p[2];

    pair(p);
    deliver(p[0], p[1], "abcdefgh");
    show_several(p[1], 0, &wrong);
    show_several(p[1], 0, &none);
    show_several(p[1], 0, &none);
    say("left: %ld.%09ld", (long)none.tv_sec, none.tv_nsec);
    show_several(p[1], 0, &none);
    show_several(p[1], MSG_DONTWAIT, &none);
}

/* A NULL buffer is an error when bytes come to it, and not before. */
CASE(null_buffers)
{
    /* the compiler knows that recv and read want a buffer */
    char room[8] = "", *volatile no = NULL;
    struct iovec list[2] = {{room, 4}, {NULL, 5}};
    int p[2];

    pair(p);
    SHOW(recv(p[1], no, 3, MSG_DONTWAIT));
    SHOW(recv(p[1], no, 0, MSG_DONTWAIT));
    SHOW(read(p[1], no, 0));
    deliver(p[0], p[1], "abcd");
    SHOW(recv(p[1], no, 3, MSG_DONTWAIT));
    SHOW(recv(p[1], no, 3, 0));
    SHOW(recv(p[1], no, 3, MSG_WAITALL));
    SHOW(read(p[1], no, 3));
    SHOW(readv(p[1], list + 1, 1));
    SHOW(readv(p[1], list, 2));
    say("%s", room);
    list[1].iov_len = (size_t)-1;
    SHOW(readv(p[1], list, 2));
    SHOW(shutdown(p[0], SHUT_WR));
    SHOW(recv(p[1], no, 3, 0));
    SHOW(readv(p[1], list + 1, 1));
    list[1].iov_len = 5;
    SHOW(readv(p[1], list, 2));
}
