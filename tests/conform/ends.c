/*
 * ends.c - how connections end: half-close, simultaneous close, linger, resets, and what is still
 * delivered: tcp(7), shutdown(2), close(2), RFC 9293, Stevens.
 */
#include "tests/conform/kit.h"

static int p[2];

CASE(shutdown_twice)
{
    pair(p);
    SHOW(shutdown(p[0], SHUT_WR));
    SHOW(shutdown(p[0], SHUT_WR));
    SHOW(shutdown(p[0], SHUT_RD));
    SHOW(shutdown(p[0], SHUT_RD));
    SHOW(shutdown(p[0], SHUT_RDWR));
    say_rest(p[1]);
}

CASE(shutdown_of_nonsense)
{
    pair(p);
    SHOW(shutdown(p[0], 3));
    SHOW(shutdown(p[0], -1));
    SHOW(shutdown(-1, SHUT_WR));
    SHOW(shutdown(socket(AF_INET, SOCK_STREAM, 0), SHUT_WR));
    deliver(p[0], p[1], "unharmed");
    SHOW(close(p[0]));
    say_rest(p[1]);
}

CASE(shutdown_after_the_peer_closed)
{
    pair(p);
    SHOW(close(p[1]));
    until(p[0], POLLRDHUP);
    SHOW(shutdown(p[0], SHUT_WR));
    until(p[0], POLLHUP);
    SHOW(shutdown(p[0], SHUT_WR));
    say_rest(p[0]);
}

static const struct amount {
    const char *name;
    size_t n;
} amounts[] = {{"1", 1}, {"63", 63}, {"64", 64}, {"65", 65}, {"128", 128}, {"5000", 5000}};

/* All of it is answered with a reset, also what looks like nothing but a frame of the
 * library's by its size. */
EACH(writes_to_who_has_closed, struct amount, amounts, COUNT(amounts))
{
    static char bytes[5000];

    memset(bytes, 'w', sizeof(bytes));
    pair(p);
    deliver(p[0], p[1], "unread");
    SHOW(close(p[0]));
    until(p[1], POLLRDHUP);
    SHOW(send(p[1], bytes, f->n, MSG_NOSIGNAL));
    say_events("poll", until(p[1], POLLHUP));
    say_error(p[1]);
    say_rest(p[1]);
    SHOW(send(p[1], bytes, f->n, MSG_NOSIGNAL));
}

/* Once: then the other direction just ends. */
CASE(a_reset_is_told_by_a_send)
{
    pair(p);
    reset(p[0]);
    until(p[1], POLLHUP);
    SHOW(send(p[1], "x", 1, MSG_NOSIGNAL));
    SHOW(send(p[1], "x", 1, MSG_NOSIGNAL));
    say_rest(p[1]);
    say_error(p[1]);
}

CASE(a_reset_is_told_by_getsockopt)
{
    pair(p);
    reset(p[0]);
    until(p[1], POLLHUP);
    say_error(p[1]);
    SHOW(send(p[1], "x", 1, MSG_NOSIGNAL));
    say_rest(p[1]);
}

/* Whatever follows it on the connection, the end of one that was shut both ways is no error. */
CASE(both_shut_then_the_peer_ends)
{
    pair(p);
    SHOW(shutdown(p[1], SHUT_RDWR));
    until(p[0], POLLRDHUP);
    say_rest(p[0]);
    SHOW(shutdown(p[0], SHUT_WR));
    until(p[0], POLLHUP);
    say_error(p[1]);
    say_rest(p[1]);
    SHOW(shutdown(p[1], SHUT_RD));
}

CASE(both_shut_then_the_peer_closes)
{
    pair(p);
    deliver(p[0], p[1], "unread");
    SHOW(shutdown(p[1], SHUT_RDWR));
    until(p[0], POLLRDHUP);
    say_rest(p[0]);
    SHOW(close(p[0]));
    say_error(p[1]);
    say_rest(p[1]);
    say_error(p[1]);
}

/* Calls that the kernel answers must not draw a reset from who has closed. */
CASE(asked_of_the_kernel_after_the_peer_has_closed)
{
    int way[2];

    pair(p);
    deliver(p[0], p[1], "unread");
    SHOW(shutdown(p[0], SHUT_RDWR));
    SHOW(close(p[0]));
    until(p[1], POLLRDHUP);
    SHOW(sockatmark(p[1]));
    must(pipe(way) == 0, "pipe");
    SHOW(splice(p[1], NULL, way[1], NULL, 100, 0));
    SHOW(splice(p[1], NULL, way[1], NULL, 100, 0));
    say_rest(p[1]);
    say_error(p[1]);
}

CASE(a_reset_is_told_by_a_send_of_nothing)
{
    char buf[10];

    struct sockaddr none = {.sa_family = AF_UNSPEC};

    pair(p);
    deliver(p[0], p[1], "unread");
    SHOW(connect(p[0], &none, sizeof(none)));
    until(p[1], POLLHUP);
    SHOW(recv(p[1], buf, sizeof(buf), 0));
    SHOW(send(p[1], buf, 0, 0));
    say_events("poll", until(p[1], POLLHUP));
    SHOW(recv(p[1], buf, 6, 0));
}

CASE(splice_after_a_reset)
{
    int way[2];

    pair(p);
    deliver(p[0], p[1], "unread");
    reset(p[0]);
    until(p[1], POLLHUP);
    must(pipe(way) == 0, "pipe");
    SHOW(splice(p[1], NULL, way[1], NULL, 100, 0));
    say_rest(p[1]);
}

/* The error is gone with it, whatever asks next. */
CASE(a_reset_is_told_by_splice_into_it)
{
    int way[2];

    pair(p);
    must(pipe(way) == 0 && write(way[1], "spliced", 7) == 7, "pipe");
    deliver(p[0], p[1], "read");
    deliver(p[1], p[0], "unread");
    SHOW(close(p[0]));
    until(p[1], POLLHUP);
    SHOW(splice(way[0], NULL, p[1], NULL, 7, SPLICE_F_NONBLOCK));
    SHOW(shutdown(p[1], SHUT_WR));
    say_rest(p[1]);
    say_error(p[1]);
}

CASE(a_reset_is_told_by_splice_out_of_it)
{
    int way[2];

    pair(p);
    must(pipe(way) == 0, "pipe");
    deliver(p[1], p[0], "unread");
    SHOW(close(p[0]));
    until(p[1], POLLHUP);
    SHOW(splice(p[1], NULL, way[1], NULL, 100, SPLICE_F_NONBLOCK));
    say_rest(p[1]);
    say_error(p[1]);
}

/* The kernel has heard of it; the library is not asked. */
static void reset_came(int fd)
{
    struct tcp_info ti = {0};

    for (int i = 0; i < PATIENCE && ti.tcpi_state != TCP_CLOSE; i++) {
        socklen_t len = sizeof(ti);

        must(getsockopt(fd, IPPROTO_TCP, TCP_INFO, &ti, &len) == 0, "TCP_INFO");
        sleep_ms(1);
    }
    must(ti.tcpi_state == TCP_CLOSE, "a reset");
}

/* By a write that nobody but libc sees. */
CASE(a_reset_is_told_by_a_file)
{
    FILE *f;

    pair(p);
    put(p[1], 0, 33);
    arrived(p[0], 33);
    SHOW(close(p[0]));
    reset_came(p[1]);
    f = fdopen(dup(p[1]), "r+");
    must(f != NULL, "fdopen");
    SHOW(fwrite("bytes", 1, 5, f));
    SHOW(fflush(f));
    SHOW(fclose(f));
    say_rest(p[1]);
    say_error(p[1]);
}

CASE(shutdown_after_a_reset)
{
    pair(p);
    reset(p[1]);
    until(p[0], POLLHUP);
    SHOW(shutdown(p[0], SHUT_WR));
    say_rest(p[0]);
}

CASE(dialogue_after_half_close)
{
    char buf[10];

    pair(p);
    SHOW(shutdown(p[0], SHUT_WR));
    say_rest(p[1]);
    for (int i = 0; i < 20; i++) {
        must(send(p[1], "answer", 6, 0) == 6, "send");
        must(recv(p[0], buf, 6, MSG_WAITALL) == 6, "recv");
    }
    put(p[1], 0, 100000);
    SHOW(close(p[1]));
    say("all %d", take(p[0], 0, SIZE_MAX));
}

CASE(both_at_once)
{
    pair(p);
    SHOW(send(p[0], "one", 3, 0));
    SHOW(send(p[1], "two", 3, 0));
    SHOW(shutdown(p[0], SHUT_WR));
    SHOW(shutdown(p[1], SHUT_WR));
    say_rest(p[0]);
    say_rest(p[1]);
    SHOW(close(p[0]));
    SHOW(close(p[1]));
}

CASE(much_before_the_close)
{
    size_t at = 0;

    pair(p);
    fill(p[0], &at);
    SHOW(close(p[0]));
    say("all %d", take(p[1], 0, at));
    SHOW(recv(p[1], (char[1]){0}, 1, 0));
}

CASE(much_before_the_shutdown)
{
    size_t at = 0;

    pair(p);
    fill(p[0], &at);
    SHOW(shutdown(p[0], SHUT_WR));
    say("all %d", take(p[1], 0, at));
    SHOW(recv(p[1], (char[1]){0}, 1, 0));
    deliver(p[1], p[0], "answer");
    SHOW(shutdown(p[1], SHUT_WR));
    say_rest(p[0]);
}

CASE(linger_waits)
{
    struct linger l = {1, 20};
    size_t at = 0;

    pair(p);
    fill(p[0], &at);
    must(take(p[1], 0, at), "take");
    SHOW(setsockopt(p[0], SOL_SOCKET, SO_LINGER, &l, sizeof(l)));
    SHOW(send(p[0], "last", 4, 0));
    SHOW(close(p[0]));
    say_rest(p[1]);
}

CASE(linger_on_a_full_one)
{
    struct linger l = {1, 1};
    size_t at = 0;

    pair(p);
    fill(p[0], &at);
    SHOW(setsockopt(p[0], SOL_SOCKET, SO_LINGER, &l, sizeof(l)));
    SHOW(close(p[0]));
    say("all %d", take(p[1], 0, at));
    SHOW(recv(p[1], (char[1]){0}, 1, 0));
}

CASE(linger_without_blocking)
{
    struct linger l = {1, 10};

    pair(p);
    SHOW(setsockopt(p[0], SOL_SOCKET, SO_LINGER, &l, sizeof(l)));
    nonblock(p[0], true);
    SHOW(send(p[0], "last", 4, 0));
    SHOW(close(p[0]));
    say_rest(p[1]);
}

CASE(abort_after_half_close)
{
    pair(p);
    SHOW(shutdown(p[0], SHUT_WR));
    until(p[1], POLLRDHUP);
    SHOW(send(p[1], "unread", 6, 0));
    arrived(p[0], 6);
    reset(p[0]);
    until(p[1], POLLHUP);
    say_rest(p[1]);
}

CASE(close_with_unread_after_its_end)
{
    pair(p);
    deliver(p[1], p[0], "unread");
    SHOW(shutdown(p[0], SHUT_WR));
    SHOW(close(p[0]));
    until(p[1], POLLHUP);
    say_rest(p[1]);
}

CASE(close_twice)
{
    pair(p);
    SHOW(close(p[0]));
    SHOW(close(p[0]));
    say_rest(p[1]);
}

CASE(close_of_one_duplicate_is_no_end)
{
    int d;

    pair(p);
    d = dup(p[0]);
    SHOW(close(p[0]));
    deliver(p[1], d, "goes on");
    SHOW(send(d, "both ways", 9, 0));
    SHOW(shutdown(d, SHUT_WR));
    say_rest(p[1]);
    SHOW(close(p[1]));
    say_rest(d);
}

CASE(shutdown_is_of_the_description)
{
    int d;

    pair(p);
    d = dup(p[0]);
    SHOW(shutdown(d, SHUT_WR));
    SHOW(send(p[0], "x", 1, MSG_NOSIGNAL));
    say_rest(p[1]);
    SHOW(close(d));
    deliver(p[1], p[0], "still read");
    SHOW(close(p[1]));
    say_rest(p[0]);
}

/* Bytes to one that has closed draw a reset; what it had sent before is read first or
 * lost, as in TCP. */
CASE(bytes_to_one_that_has_closed)
{
    pair(p);
    deliver(p[0], p[1], "sent before");
    SHOW(close(p[0]));
    until(p[1], POLLRDHUP);
    say_rest(p[1]);
    SHOW(send(p[1], "x", 1, MSG_NOSIGNAL));
    until(p[1], POLLHUP);
    SHOW(send(p[1], "x", 1, MSG_NOSIGNAL));
    SHOW(recv(p[1], (char[1]){0}, 1, 0));
}

CASE(shut_reader_still_acknowledges)
{
    pair(p);
    SHOW(shutdown(p[1], SHUT_RD));
    for (int i = 0; i < 5; i++)
        SHOW(send(p[0], "more", 4, 0));
    SHOW(shutdown(p[0], SHUT_WR));
    until(p[1], POLLRDHUP);
    arrived(p[1], 20);
    say_rest(p[1]);
}

CASE(listener_closed_first)
{
    struct sockaddr_storage at;
    socklen_t len;
    int l = listener(&net4, &at, &len);

    p[0] = socket(AF_INET, SOCK_STREAM, 0);
    SHOW(connect(p[0], (struct sockaddr *)&at, len));
    SHOW(close(l));
    until(p[0], POLLHUP);
    say_rest(p[0]);
}

CASE(accepted_after_the_client_has_gone)
{
    struct sockaddr_storage at;
    socklen_t len;
    int l = listener(&net4, &at, &len);

    p[0] = socket(AF_INET, SOCK_STREAM, 0);
    SHOW(connect(p[0], (struct sockaddr *)&at, len));
    SHOW(send(p[0], "all that there was", 18, 0));
    SHOW(close(p[0]));
    p[1] = accept(l, NULL, NULL);
    say_rest(p[1]);
}

CASE(many_short_ones)
{
    struct sockaddr_storage at;
    socklen_t len;
    int l = listener(&net4, &at, &len);

    for (int i = 0; i < 50; i++) {
        char buf[8];

        p[0] = socket(AF_INET, SOCK_STREAM, 0);
        must(connect(p[0], (struct sockaddr *)&at, len) == 0, "connect");
        p[1] = accept(l, NULL, NULL);
        must(send(p[0], "request", 7, 0) == 7, "send");
        must(recv(p[1], buf, 7, MSG_WAITALL) == 7, "recv");
        must(send(p[1], "answer", 6, 0) == 6, "send");
        close(p[1]);
        must(recv(p[0], buf, 8, MSG_WAITALL) == 6, "recv");
        close(p[0]);
    }
    say("fine");
}
