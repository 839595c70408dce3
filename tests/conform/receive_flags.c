/*
 * receive_flags.c - what the flags of recv(2) do, in each form of receiving that takes some.
 */
#include "tests/conform/forms_recv.h"

static void flagged(const struct rform *f, int fd, size_t n, const char *name, int flags)
{
    char buf[100] = "";
    ssize_t got;

    errno = CLEAN;
    got = f->get_with(fd, buf, n, flags);
    show(name, got, errno);
    if (got > 0)
        say_bytes(" ", buf, got);
}

#define FLAGGED(fd, n, flags) flagged(f, fd, n, #flags, flags)
#define EACH_FLAGGED(id)      EACH(id, struct rform, rforms + 3, 4)

EACH_FLAGGED(dontwait)
{
    int p[2];

    pair(p);
    FLAGGED(p[1], 10, MSG_DONTWAIT);
    deliver(p[0], p[1], "some");
    FLAGGED(p[1], 10, MSG_DONTWAIT);
    SHOW(close(p[0]));
    until(p[1], POLLRDHUP);
    FLAGGED(p[1], 10, MSG_DONTWAIT);
}

/* The same once more has gone by than the library digests. */
EACH_FLAGGED(dontwait_after_much)
{
    int p[2];

    pair(p);
    put(p[0], 0, 100000);
    say("all %d", take(p[1], 0, 100000));
    FLAGGED(p[1], 10, MSG_DONTWAIT);
    deliver(p[0], p[1], "some");
    FLAGGED(p[1], 0, MSG_DONTWAIT);
    FLAGGED(p[1], 10, MSG_DONTWAIT);
    SHOW(fcntl(p[1], F_SETFL, O_NONBLOCK));
    FLAGGED(p[1], 10, 0);
    SHOW(close(p[0]));
    until(p[1], POLLRDHUP);
    FLAGGED(p[1], 10, 0);
}

EACH_FLAGGED(peek)
{
    int p[2];

    pair(p);
    deliver(p[0], p[1], "look at me");
    FLAGGED(p[1], 4, MSG_PEEK);
    FLAGGED(p[1], 100, MSG_PEEK);
    FLAGGED(p[1], 4, 0);
    FLAGGED(p[1], 100, MSG_PEEK);
    deliver(p[0], p[1], " again");
    FLAGGED(p[1], 100, MSG_PEEK | MSG_DONTWAIT);
    FLAGGED(p[1], 100, 0);
    FLAGGED(p[1], 100, MSG_PEEK | MSG_DONTWAIT);
}

EACH_FLAGGED(peek_at_the_end)
{
    int p[2];

    pair(p);
    deliver(p[0], p[1], "end");
    SHOW(shutdown(p[0], SHUT_WR));
    until(p[1], POLLRDHUP);
    FLAGGED(p[1], 100, MSG_PEEK);
    FLAGGED(p[1], 100, 0);
    FLAGGED(p[1], 100, MSG_PEEK);
    FLAGGED(p[1], 100, MSG_PEEK);
    FLAGGED(p[1], 100, 0);
}

EACH_FLAGGED(waitall_at_the_end)
{
    int p[2];

    pair(p);
    deliver(p[0], p[1], "too few");
    SHOW(shutdown(p[0], SHUT_WR));
    FLAGGED(p[1], 100, MSG_WAITALL);
    FLAGGED(p[1], 100, MSG_WAITALL);
}

EACH_FLAGGED(waitall_dontwait)
{
    int p[2];

    pair(p);
    FLAGGED(p[1], 10, MSG_WAITALL | MSG_DONTWAIT);
    deliver(p[0], p[1], "few");
    FLAGGED(p[1], 10, MSG_WAITALL | MSG_DONTWAIT);
}

/* TCP: the bytes are thrown away. */
EACH_FLAGGED(trunc)
{
    int p[2];

    pair(p);
    deliver(p[0], p[1], "thrown away, the rest is not");
    errno = CLEAN;
    show("MSG_TRUNC", f->get_with(p[1], NULL, 0, MSG_TRUNC | MSG_DONTWAIT), errno);
    if (strcmp(f->name, "recv") == 0 || strcmp(f->name, "recvfrom") == 0)
        SHOW_AS("NULL", f->get_with(p[1], NULL, 12, MSG_TRUNC));
    FLAGGED(p[1], 100, 0);
}

/* In pieces, up to the end of what is there, and to the end of the stream. */
EACH_FLAGGED(trunc_of_much)
{
    enum { MUCH = 20000 };
    static char text[MUCH + 1];
    int p[2];

    for (int i = 0; i < MUCH; i++)
        text[i] = (char)('a' + i % 23);
    pair(p);
    deliver(p[0], p[1], text);
    SHOW_AS("peek", f->get_with(p[1], text, 15000, MSG_TRUNC | MSG_PEEK));
    SHOW_AS("7000", f->get_with(p[1], text, 7000, MSG_TRUNC));
    FLAGGED(p[1], 10, 0);
    SHOW_AS("all", f->get_with(p[1], text, MUCH - 7010, MSG_TRUNC | MSG_WAITALL));
    SHOW_AS("none", f->get_with(p[1], text, 10, MSG_TRUNC | MSG_DONTWAIT));
    deliver(p[0], p[1], "the last");
    SHOW(shutdown(p[0], SHUT_WR));
    SHOW_AS("the last", f->get_with(p[1], text, MUCH, MSG_TRUNC));
    SHOW_AS("the end", f->get_with(p[1], text, MUCH, MSG_TRUNC));
}

EACH_FLAGGED(out_of_band_without_any)
{
    int p[2];

    pair(p);
    FLAGGED(p[1], 1, MSG_OOB);
    deliver(p[0], p[1], "in the band");
    FLAGGED(p[1], 1, MSG_OOB);
    FLAGGED(p[1], 100, 0);
}

EACH_FLAGGED(error_queue)
{
    int p[2];

    pair(p);
    deliver(p[0], p[1], "data");
    FLAGGED(p[1], 10, MSG_ERRQUEUE);
    FLAGGED(p[1], 10, 0);
}

EACH_FLAGGED(unknown_flag)
{
    int p[2];

    pair(p);
    deliver(p[0], p[1], "data");
    FLAGGED(p[1], 10, MSG_DONTROUTE | MSG_CONFIRM | MSG_NOSIGNAL | MSG_EOR);
}

EACH_FLAGGED(flags_of_a_send)
{
    int p[2];

    pair(p);
    deliver(p[0], p[1], "data");
    FLAGGED(p[1], 2, MSG_MORE | MSG_NOSIGNAL);
    FLAGGED(p[1], 10, MSG_CTRUNC | MSG_EOR);
}

/* "ab", an urgent byte, "cde": what a receive got by a rail, too, ends before the byte. */
static void urgent_between(int p[2])
{
    pair(p);
    deliver(p[0], p[1], "ab");
    SHOW(send(p[0], "!", 1, MSG_OOB));
    SHOW(send(p[0], "cde", 3, 0));
    acked(p[0]);
    until(p[1], POLLIN | POLLPRI);
}

EACH_FLAGGED(before_urgent_data)
{
    int p[2];

    urgent_between(p);
    FLAGGED(p[1], 100, MSG_PEEK);
    FLAGGED(p[1], 100, 0);
    say_events("poll", until(p[1], POLLPRI));
    FLAGGED(p[1], 1, MSG_OOB);
    FLAGGED(p[1], 100, MSG_PEEK);
    FLAGGED(p[1], 100, 0);
}

EACH_FLAGGED(all_before_urgent_data)
{
    int p[2];

    urgent_between(p);
    FLAGGED(p[1], 5, MSG_WAITALL);
    FLAGGED(p[1], 3, MSG_WAITALL);
}

static void sends_rest(void *arg)
{
    must(send(*(int *)arg, "cde", 3, 0) == 3, "send");
}

static void ends(void *arg)
{
    must(shutdown(*(int *)arg, SHUT_WR) == 0, "shutdown");
}

/* Of five bytes two are there, and fn comes once it sleeps. */
static void peeks_at_all(const struct rform *f, int p[2], void (*fn)(void *))
{
    struct later l;

    pair(p);
    deliver(p[0], p[1], "ab");
    later(&l, fn, p);
    FLAGGED(p[1], 5, MSG_PEEK | MSG_WAITALL);
    later_end(&l);
}

EACH_FLAGGED(peek_at_all_that_comes)
{
    int p[2];

    peeks_at_all(f, p, sends_rest);
    FLAGGED(p[1], 5, 0);
}

EACH_FLAGGED(peek_at_all_before_the_end)
{
    int p[2];

    peeks_at_all(f, p, ends);
    FLAGGED(p[1], 5, MSG_PEEK | MSG_WAITALL);
    FLAGGED(p[1], 5, 0);
}

/* The rest comes once the receive has returned; or else after 3 s, or it would never return. */
static int returned[2];
static bool in_time;

static void sends_urgent(void *arg)
{
    struct pollfd q = {.fd = returned[0], .events = POLLIN};
    int *p = arg;

    must(send(p[0], "!", 1, MSG_OOB) == 1, "send(MSG_OOB)");
    in_time = poll(&q, 1, 30000) == 1;
    must(send(p[0], "cde", 3, 0) == 3, "send");
}

EACH_FLAGGED(all_before_urgent_data_that_comes)
{
    struct later l;
    int p[2];

    pair(p);
    must(pipe(returned) == 0, "pipe");
    deliver(p[0], p[1], "ab");
    later(&l, sends_urgent, p);
    FLAGGED(p[1], 5, MSG_WAITALL);
    must(write(returned[1], "", 1) == 1, "write");
    later_end(&l);
    say("in time: %d", in_time);
    FLAGGED(p[1], 3, MSG_WAITALL);
}

EACH_FLAGGED(passed_over_before_urgent_data)
{
    int p[2];

    urgent_between(p);
    SHOW(f->get_with(p[1], NULL, 100, MSG_TRUNC | MSG_PEEK));
    SHOW(f->get_with(p[1], NULL, 100, MSG_TRUNC));
    FLAGGED(p[1], 1, MSG_OOB);
    FLAGGED(p[1], 100, 0);
}

/* When the bytes came, with the bytes. The kernel begins to look at its clock some time after
 * it is asked to. */
CASE(time_stamps)
{
    static const int names[] = {SO_TIMESTAMP, SO_TIMESTAMPNS};
    union {
        char space[256];
        struct cmsghdr first;
    } control;
    const int on = 1;
    int p[2];
    char byte;
    struct iovec v = {&byte, 1};

    for (size_t i = 0; i < COUNT(names); i++) {
        struct cmsghdr *stamp = NULL;

        pair(p);
        SHOW(setsockopt(p[1], SOL_SOCKET, names[i], &on, sizeof(on)));
        for (int tries = 0; !stamp && tries < 200; tries++) {
            struct msghdr m = {.msg_iov = &v,
                               .msg_iovlen = 1,
                               .msg_control = &control,
                               .msg_controllen = sizeof(control)};

            sleep_ms(1);
            deliver(p[0], p[1], "b");
            must(recvmsg(p[1], &m, 0) == 1, "recvmsg");
            stamp = CMSG_FIRSTHDR(&m);
        }
        must(stamp != NULL, "a stamp");
        say("level %d type %d", stamp->cmsg_level, stamp->cmsg_type);
    }
}
