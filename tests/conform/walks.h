/*
 * walks.h - the state of a random walk (walks.c), and those of its steps that are not about
 * bytes, ends and epoll.
 */
#ifndef CONFORM_WALKS_H
#define CONFORM_WALKS_H

#include "tests/conform/kit.h"

enum { FEW = 120, MOST_UNREAD = 15000 };

struct walk {
    uint64_t random;
    int fd[2]; /* -1: closed */
    int ep[2];
    /* shut for reading, or disconnected: what is sent to it draws a reset at some time */
    bool deaf[2];
    bool inherited; /* by a program: README, Limits */
    size_t sent[2], got[2];
};

unsigned below(struct walk *, unsigned n);
/* Sent to end i, and not received. An urgent byte counts for ever. */
size_t unread(const struct walk *, int i);
/* End i has got what should be the stream's next bytes. bytes NULL: nobody looks at them. */
void has_got(struct walk *, int i, const char *bytes, ssize_t n, bool taken);

/* What a call does at the other end has time to come there. */
void settle(void);

/* Steps: end i does something, and prints what the calls say. */
typedef void step(struct walk *, int i);

step least, option, in_time, not_blocking, state, sends_urgent, receives_urgent, another_number,
    over_itself, passed_back, child, wakes, other_calls, disconnects, over_another, system_of,
    by_stdio, polls_all, owns, sleeps, sends_long;

#endif
