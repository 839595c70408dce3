/*
 * crossed.h - a stream that boards while bytes of it are unread.
 */
#ifndef TESTS_PRELOAD_CROSSED_H
#define TESTS_PRELOAD_CROSSED_H

#include "pair.h"

enum { PIECE = 10, PIECES = 40, ALL = PIECE * PIECES };

/* The unread bytes are the i-th of "ahov...". */
static inline char sent_byte(size_t i)
{
    return (char)('a' + i * 7 % 26);
}

static inline bool as_sent(const char *got)
{
    for (size_t i = 0; i < ALL; i++)
        if (got[i] != sent_byte(i))
            return false;
    return true;
}

/* The end that reads nothing and sends pings: a descriptor of this process's, or -1 and a pipe on
 * which the child that has it is told to go on. */
struct other {
    int fd, go;
};

static inline void ping(int fd, const struct other *o)
{
    char bytes[64] = "bytes by which the stream becomes known to both ends";

    must(o->fd < 0 || write(o->fd, bytes, sizeof(bytes)) == sizeof(bytes), "write");
    must(recv(fd, bytes, sizeof(bytes), MSG_WAITALL) == sizeof(bytes), "recv");
    must(o->fd >= 0 || write(o->go, "x", 1) == 1, "go on");
}

/* Whether the piece went by TCP. */
static inline bool put_piece(int fd, int i)
{
    unsigned long long before = tcp_sent(fd);
    char bytes[PIECE];

    for (int j = 0; j < PIECE; j++)
        bytes[j] = sent_byte((size_t)i * PIECE + (size_t)j);
    must(write(fd, bytes, PIECE) == PIECE, "write");
    return tcp_sent(fd) != before;
}

/* Writes all that the other end has not read. In mode rail the pings go over a rail after the
 * first piece, which is too short to stand against a proof, and the rest is to meet a switch.
 * Whether it has. */
static inline bool fill(int fd, const struct other *o)
{
    time_t begin = time(NULL);
    bool crossed = false;

    put_piece(fd, 0);
    ping(fd, o);
    ping(fd, o);
    for (bool tcp = mode_rail(); tcp && others_run(begin);) {
        unsigned long long before = tcp_received(fd);

        ping(fd, o);
        tcp = tcp_received(fd) != before;
    }
    for (int i = 1; i < PIECES; i++) {
        if (!put_piece(fd, i))
            crossed = true;
        else if (mode_rail())
            usleep(1000); /* a switch that nobody has confirmed is tried again after some time */
        ping(fd, o);
    }
    return crossed;
}

/* Its bytes do not wait for an answer of the other end. */
static inline void at_once(int fd)
{
    int one = 1;

    must(setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one)) == 0, "TCP_NODELAY");
}

/* p[0] has ALL bytes unread. Whether the switch lies among them. */
static inline bool unread_pair(int p[2])
{
    struct sockaddr_in at;
    int l = listener(&at);

    pair_at(l, &at, p);
    close(l);
    at_once(p[0]);
    return fill(p[1], &(struct other){.fd = p[0], .go = -1});
}

#endif
