/*
 * addresses.c - connections over IPv4, IPv6 and both, bound sources, groups of listeners, and the
 * options of connecting and accepting: ip(7), ipv6(7), tcp(7), accept(2), connect(2).
 */
#include "tests/conform/kit.h"

static const struct net nets[] = {
    {"ipv4", AF_INET, OWN, OWN},
    {"ipv4_other_loopback", AF_INET, "127.0.0.7", "127.0.0.7"},
    {"ipv4_any", AF_INET, "0.0.0.0", OWN},
    {"ipv6", AF_INET6, OWN6, OWN6},
    {"ipv6_any", AF_INET6, "::", OWN6},
    {"mapped_listener", AF_INET, "::ffff:" OWN, OWN},
    {"mapped_client", AF_INET6, OWN, "::ffff:" OWN},
    {"mapped_both", AF_INET6, "::ffff:" OWN, "::ffff:" OWN},
    {"dual_stack", AF_INET, "::", OWN},
};

#define EACH_NET(id) EACH(id, struct net, nets, COUNT(nets))

static int p[2];

static void both_ways(void)
{
    char buf[10] = "";

    must(send(p[0], "ping", 4, 0) == 4 && recv(p[1], buf, 4, MSG_WAITALL) == 4, "ping");
    must(send(p[1], "pong", 4, 0) == 4 && recv(p[0], buf, 4, MSG_WAITALL) == 4, "pong");
    say_bytes("both ways", buf, 4);
}

static void say_address(const char *what, int r, const struct sockaddr_storage *a, socklen_t len)
{
    char text[INET6_ADDRSTRLEN] = "";

    if (r != 0) {
        show(what, r, errno);
        return;
    }
    inet_ntop(a->ss_family,
              a->ss_family == AF_INET ? (const void *)&((const struct sockaddr_in *)a)->sin_addr
                                      : (const void *)&((const struct sockaddr_in6 *)a)->sin6_addr,
              text, sizeof(text));
    say("%s: family %d, %s, length %u", what, a->ss_family, text, len);
}

static void names_of(int fd)
{
    struct sockaddr_storage a = {0};
    socklen_t len = sizeof(a);
    int r = getsockname(fd, (struct sockaddr *)&a, &len);

    say_address("sock", r, &a, len);
    len = sizeof(a);
    r = getpeername(fd, (struct sockaddr *)&a, &len);
    say_address("peer", r, &a, len);
}

EACH_NET(names)
{
    pair_over(f, p);
    names_of(p[0]);
    names_of(p[1]);
    both_ways();
}

EACH_NET(much)
{
    pair_over(f, p);
    for (size_t at = 0; at < 400000; at += 20000) {
        put(p[0], at, 20000);
        must(take(p[1], at, 20000), "take");
    }
    SHOW(close(p[0]));
    SHOW(recv(p[1], (char[1]){0}, 1, 0));
}

EACH_NET(ends)
{
    pair_over(f, p);
    reset(p[0]);
    until(p[1], POLLHUP);
    SHOW(recv(p[1], (char[1]){0}, 1, 0));
}

CASE(short_address_buffer)
{
    struct sockaddr_in a;
    socklen_t len = 4;

    pair(p);
    memset(&a, 0x55, sizeof(a));
    SHOW(getpeername(p[0], (struct sockaddr *)&a, &len));
    say("length %u, then %#x", len, ((unsigned char *)&a)[5]);
    len = 0;
    SHOW(getsockname(p[0], (struct sockaddr *)&a, &len));
    say("length %u", len);
    len = (socklen_t)-1;
    SHOW(getsockname(p[0], (struct sockaddr *)&a, &len));
}

CASE(bound_source)
{
    struct sockaddr_storage at;
    struct sockaddr_in from = {.sin_family = AF_INET};
    socklen_t len;
    int l = listener(&net4, &at, &len);

    from.sin_addr.s_addr = htonl(0x7f000005);
    p[0] = socket(AF_INET, SOCK_STREAM, 0);
    SHOW(bind(p[0], (struct sockaddr *)&from, sizeof(from)));
    SHOW(connect(p[0], (struct sockaddr *)&at, len));
    p[1] = accept(l, NULL, NULL);
    board(p[0], p[1]);
    names_of(p[0]);
    names_of(p[1]);
    both_ways();
}

CASE(accept_gives_the_address)
{
    struct sockaddr_storage at, from = {0};
    socklen_t len, flen = sizeof(from);
    int l = listener(&net6, &at, &len);

    p[0] = socket(AF_INET6, SOCK_STREAM, 0);
    SHOW(connect(p[0], (struct sockaddr *)&at, len));
    p[1] = accept(l, (struct sockaddr *)&from, &flen);
    say_address("from", 0, &from, flen);
    board(p[0], p[1]);
    both_ways();
}

CASE(accept_bad_arguments)
{
    struct sockaddr_storage at;
    socklen_t len, bad = (socklen_t)-1;
    int l = listener(&net4, &at, &len);

    p[0] = socket(AF_INET, SOCK_STREAM, 0);
    SHOW(connect(p[0], (struct sockaddr *)&at, len));
    until(l, POLLIN);
    SHOW(accept(l, (struct sockaddr *)&at, &bad)); /* the connection is lost */
    nonblock(l, true);
    SHOW(accept(l, NULL, NULL));
    SHOW(accept(p[0], NULL, NULL));
    SHOW(accept(-1, NULL, NULL));
    SHOW(accept(0, NULL, NULL));
}

CASE(connect_bad_arguments)
{
    struct sockaddr_storage at;
    socklen_t len;
    int l = listener(&net4, &at, &len), c = socket(AF_INET, SOCK_STREAM, 0);

    SHOW(connect(c, (struct sockaddr *)&at, 2));
    SHOW(connect(-1, (struct sockaddr *)&at, len));
    SHOW(connect(0, (struct sockaddr *)&at, len));
    at.ss_family = AF_INET6;
    SHOW(connect(c, (struct sockaddr *)&at, len));
    at.ss_family = AF_INET;
    SHOW(connect(l, (struct sockaddr *)&at, len));
    SHOW(connect(c, (struct sockaddr *)&at, len));
    SHOW(connect(c, (struct sockaddr *)&at, len));
}

CASE(refused)
{
    struct sockaddr_storage at;
    socklen_t len;
    int l = listener(&net4, &at, &len), c = socket(AF_INET, SOCK_STREAM, 0);

    close(l);
    SHOW(connect(c, (struct sockaddr *)&at, len));
    SHOW(connect(c, (struct sockaddr *)&at, len));
    SHOW(send(c, "x", 1, MSG_NOSIGNAL));
}

CASE(without_blocking)
{
    struct sockaddr_storage at;
    socklen_t len;
    int l = listener(&net4, &at, &len);

    p[0] = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    SHOW(connect(p[0], (struct sockaddr *)&at, len));
    until(p[0], POLLOUT);
    SHOW(connect(p[0], (struct sockaddr *)&at, len));
    SHOW(connect(p[0], (struct sockaddr *)&at, len));
    p[1] = accept(l, NULL, NULL);
    nonblock(p[0], false);
    board(p[0], p[1]);
    both_ways();
}

CASE(connected_to_itself)
{
    struct sockaddr_in a = {.sin_family = AF_INET};
    socklen_t len = sizeof(a);
    char buf[10] = "";

    a.sin_addr.s_addr = inet_addr(own_address());
    p[0] = socket(AF_INET, SOCK_STREAM, 0);
    SHOW(bind(p[0], (struct sockaddr *)&a, len));
    SHOW(getsockname(p[0], (struct sockaddr *)&a, &len));
    SHOW(connect(p[0], (struct sockaddr *)&a, len));
    for (int i = 0; i < 30; i++) {
        must(send(p[0], "echo", 4, 0) == 4 && recv(p[0], buf, 4, MSG_WAITALL) == 4, "echo");
    }
    say_bytes("echo", buf, 4);
    SHOW(shutdown(p[0], SHUT_WR));
    SHOW(recv(p[0], buf, 4, 0));
}

CASE(reuseport_group)
{
    struct sockaddr_storage at;
    socklen_t len;
    int l[3], on = 1, served = 0;

    for (int i = 0; i < 3; i++) {
        l[i] = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
        SHOW(setsockopt(l[i], SOL_SOCKET, SO_REUSEPORT, &on, sizeof(on)));
        if (i == 0) {
            struct sockaddr_in a = {.sin_family = AF_INET};

            a.sin_addr.s_addr = inet_addr(own_address());
            SHOW(bind(l[0], (struct sockaddr *)&a, sizeof(a)));
            len = sizeof(at);
            SHOW(getsockname(l[0], (struct sockaddr *)&at, &len));
        } else {
            SHOW(bind(l[i], (struct sockaddr *)&at, len));
        }
        SHOW(listen(l[i], 16));
    }
    for (int i = 0; i < 4; i++) {
        p[0] = socket(AF_INET, SOCK_STREAM, 0);
        must(connect(p[0], (struct sockaddr *)&at, len) == 0, "connect");
        for (p[1] = -1; p[1] < 0;)
            for (int k = 0; k < 3 && p[1] < 0; k++)
                p[1] = accept(l[k], NULL, NULL);
        board(p[0], p[1]);
        served++;
    }
    say("served %d", served);
}

CASE(port_in_use)
{
    struct sockaddr_storage at;
    socklen_t len;
    int l = listener(&net4, &at, &len), c = socket(AF_INET, SOCK_STREAM, 0);

    SHOW(bind(c, (struct sockaddr *)&at, len));
    SHOW(close(l));
    SHOW(bind(c, (struct sockaddr *)&at, len));
    SHOW(bind(c, (struct sockaddr *)&at, len));
}

CASE(listen_again_at_once)
{
    struct sockaddr_storage at;
    socklen_t len;
    int l = listener(&net4, &at, &len), on = 1, c;

    p[0] = socket(AF_INET, SOCK_STREAM, 0);
    SHOW(connect(p[0], (struct sockaddr *)&at, len));
    p[1] = accept(l, NULL, NULL);
    board(p[0], p[1]);
    SHOW(close(l));
    c = socket(AF_INET, SOCK_STREAM, 0);
    SHOW(setsockopt(c, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)));
    SHOW(bind(c, (struct sockaddr *)&at, len));
    SHOW(close(c));
    both_ways();
}

CASE(defer_accept)
{
    struct sockaddr_storage at;
    socklen_t len;
    int l = listener(&net4, &at, &len), seconds = 5;

    SHOW(setsockopt(l, IPPROTO_TCP, TCP_DEFER_ACCEPT, &seconds, sizeof(seconds)));
    p[0] = socket(AF_INET, SOCK_STREAM, 0);
    SHOW(connect(p[0], (struct sockaddr *)&at, len));
    SHOW(poll(&(struct pollfd){l, POLLIN, 0}, 1, 20));
    SHOW(send(p[0], "first", 5, 0));
    p[1] = accept(l, NULL, NULL);
    must(take(p[1], 0, 0) && recv(p[1], (char[5]){0}, 5, MSG_WAITALL) == 5, "first");
    board(p[0], p[1]);
    both_ways();
}

CASE(fast_open)
{
    struct sockaddr_storage at;
    socklen_t len;
    int l = listener(&net4, &at, &len), queue = 5;
    char buf[10] = "";

    SHOW_AS("TCP_FASTOPEN", setsockopt(l, IPPROTO_TCP, TCP_FASTOPEN, &queue, sizeof(queue)));
    p[0] = socket(AF_INET, SOCK_STREAM, 0);
    SHOW(sendto(p[0], "early", 5, MSG_FASTOPEN, (struct sockaddr *)&at, len));
    p[1] = accept(l, NULL, NULL);
    SHOW(recv(p[1], buf, 5, MSG_WAITALL));
    both_ways();
}

CASE(backlog_order)
{
    struct sockaddr_storage at;
    socklen_t len;
    int l = listener(&net4, &at, &len), c[4];

    for (int i = 0; i < 4; i++) {
        c[i] = socket(AF_INET, SOCK_STREAM, 0);
        must(connect(c[i], (struct sockaddr *)&at, len) == 0, "connect");
        must(send(c[i], &"abcd"[i], 1, 0) == 1, "send");
    }
    for (int i = 0; i < 4; i++) {
        char byte = '?';

        p[1] = accept(l, NULL, NULL);
        must(recv(p[1], &byte, 1, 0) == 1, "recv");
        say("%c", byte);
        board(c[i], p[1]);
    }
}
