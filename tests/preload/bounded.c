/*
 * bounded.c - how much can be sent that nobody reads, where the application has said how much
 * (SO_SNDBUF): before connect, by the listener for what it accepts, and by either end when it is on
 * its rail. On a rail no more than that and the least of TCP's windows; no less than it in any
 * case. A stream whose ring stays full leaves it for TCP, where there is more room: what has done
 * so is not counted.
 */
#include "pair.h"

#include <poll.h>

static int counted;

static void fills(int from, int to, const char *who)
{
    unsigned long long by_tcp = tcp_sent(from);
    static char bytes[4096];
    size_t most = 32768 + 65536, sent = 0, back = 0;
    struct pollfd room = {.fd = from, .events = POLLOUT};
    bool rail;
    ssize_t n;

    /* While it changes track there may be none for a moment. */
    do
        while ((n = send(from, bytes, sizeof(bytes), MSG_DONTWAIT)) > 0)
            sent += (size_t)n;
    while (sent < 32768 && poll(&room, 1, 10000) == 1);
    n = errno;
    rail = mode_rail() && tcp_sent(from) == by_tcp;
    counted += rail;
    printf("%s: %s, too much: %d, too little: %d\n", who, strerrorname_np((int)n),
           rail && sent > most, sent < 32768);
    for (; back < sent; back += (size_t)n)
        must((n = recv(to, bytes, sizeof(bytes), 0)) > 0, "recv");
}

/* Both ends, which end with it. */
static void both_fill(int p[2])
{
    counted = 0;
    for (int i = 0; i < 50; i++) {
        fills(p[0], p[1], "who has connected");
        fills(p[1], p[0], "who was accepted");
    }
    if (mode_rail() && counted < 2)
        puts("it was never on a rail");
    close(p[0]);
    close(p[1]);
}

static void before(void)
{
    struct sockaddr_in at;
    int l = listener(&at), room = 16384, p[2];

    puts("-- before");
    SHOW(setsockopt(l, SOL_SOCKET, SO_SNDBUF, &room, sizeof(room)));
    p[0] = socket(AF_INET, SOCK_STREAM, 0);
    SHOW(setsockopt(p[0], SOL_SOCKET, SO_SNDBUF, &room, sizeof(room)));
    must(connect(p[0], (struct sockaddr *)&at, sizeof(at)) == 0, "connect");
    p[1] = accept(l, NULL, NULL);
    must(p[1] >= 0, "accept");
    on_rail(p);
    both_fill(p);
    close(l);
}

/* The other half of the rail is asked to leave as well, and does so some time later. */
static void set_and_boards(int p[2], int i, int room)
{
    unsigned long long by_tcp = tcp_sent(p[!i]);
    time_t begin = time(NULL);

    SHOW(setsockopt(p[i], SOL_SOCKET, SO_SNDBUF, &room, sizeof(room)));
    if (mode_rail())
        while (tcp_sent(p[!i]) == by_tcp && others_run(begin))
            pass(p, !i);
    on_rail(p);
}

/* More than a ring changes nothing, and so does the same again. */
static void stays(int p[2], int room, const char *what)
{
    unsigned long long by_tcp = tcp_sent(p[0]);

    SHOW(setsockopt(p[0], SOL_SOCKET, SO_SNDBUF, &room, sizeof(room)));
    for (int i = 0; i < 20; i++)
        pass(p, 0);
    if (mode_rail() && tcp_sent(p[0]) != by_tcp)
        printf("%s: it has left its rail\n", what);
}

static void on_its_rail(void)
{
    struct sockaddr_in at;
    int l = listener(&at), room = 16384, p[2];

    puts("-- on its rail");
    pair_at(l, &at, p);
    on_rail(p);
    stays(p, 1 << 20, "as much as there may be");
    set_and_boards(p, 0, room);
    set_and_boards(p, 1, room);
    stays(p, room, "the same again");
    both_fill(p);
    close(l);
}

int main(void)
{
    before();
    on_its_rail();
    return 0;
}
