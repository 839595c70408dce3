/*
 * attack.h - a program that speaks the protocol honestly, with the product's own sources, up to one
 * lie. tests/attack_test.sh and tests/attack_lab_test.sh run it against ordinary programs.
 */
#ifndef ATTACK_H
#define ATTACK_H

#include <netinet/in.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "ipoib_fallback/stream.h"

enum { PATIENCE_S = 20 };

/* A connection of this program's to a victim that echoes; tracked, so that it boards. */
struct victim {
    int fd;
    struct fb_stream *s;
    uint64_t pos; /* bytes that went there and came back */
};

static inline struct fb_conn *conn(const struct victim *v)
{
    return conn_of(v->s);
}

/* ---- attack_peer.c */

/* The connection that victim_connect made, for hooks. */
extern struct fb_conn *_Atomic attacked;
/* For a second one. */
extern const char *victim_address;
extern uint16_t victim_port;
void victim_connect(struct victim *, const char *address, uint16_t port);
/* 0, or a negative errno: -EAGAIN after PATIENCE_S, -EBADMSG when what came back is
 * not what went. */
int round_trip(struct victim *, size_t n);
extern bool careless; /* round_trip does not compare, and has little patience */
/* Round trips until both directions are on a rail, or the connection ends, or for so long. */
bool board(struct victim *, unsigned seconds);
void victim_close(struct victim *);

/* ---- a lie */

struct lie {
    const char *name;
    /* What comes back is of no interest, and neither whether it comes: the lie hurts ourselves. */
    bool careless;
    /* The victim leaves because of it, as soon as it has a turn, which the round trips wait for. */
    bool leaves;
    /* Before the connection is made: hooks. NULL: none. */
    void (*before)(void);
    /* On a boarded connection, again and again while traffic runs, on a thread of its
     * own. NULL: none. */
    void (*scribble)(struct victim *);
    /* On a boarded connection, before each round trip, because our own library writes the truth in
     * between. NULL: none. */
    void (*each)(struct victim *);
    /* On a boarded connection, once. NULL: none. */
    void (*once)(struct victim *);
};

extern const struct lie shm_lies[], frame_lies[], verbs_lies[];

/* ---- attack_rogue.c: without the TCP stream */

int rogue_listen(const char *port, const char *known);
/* Over verbs: from now on each rail that is accepted is asked for something at once
 * (attack_verbs.c). */
void ask_early(void);
int rogue_ask(char **tuple, const char *known);
int squat(const char *uid, const char *port, const char *pid);
int bad_fds(const char *port, const char *kind);
/* Connected to that process's rendezvous for the port. */
int rogue_dial(uint32_t uid, uint16_t port, uint32_t pid);

/* ---- attack_linger.c */

void linger_bells(struct victim *);
int linger_knock(char **who);

/* Unlike the product: tells and ends. */
#define DIE(...)                      \
    do {                              \
        fprintf(stderr, __VA_ARGS__); \
        fputc('\n', stderr);          \
        exit(3);                      \
    } while (0)

#endif
