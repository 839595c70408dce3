/*
 * kit_epoll.h - for the cases about epoll: an instance and a pair, and what the instance reports.
 * Data is never printed as it is but as the letter given to ADD.
 */
#ifndef CONFORM_KIT_EPOLL_H
#define CONFORM_KIT_EPOLL_H

#include "tests/conform/kit.h"

#include <sys/epoll.h>

/* A stream that boards while it is registered has its news where the instance looks; another one's
 * come over the progress thread. */
struct order {
    const char *name;
    bool registered_first;
};

#define ORDERS 2
extern const struct order orders[ORDERS];

#define EACH_ORDER(id) EACH(id, struct order, orders, ORDERS)

void begin(const struct order *);
extern int ep, p[2]; /* what begin() has made */

int ctl(int on, int op, int fd, unsigned events, char letter);

#define ADD(fd, events, letter) SHOW(ctl(ep, EPOLL_CTL_ADD, fd, events, letter))
#define MOD(fd, events, letter) SHOW(ctl(ep, EPOLL_CTL_MOD, fd, events, letter))
#define DEL(fd)                 SHOW(epoll_ctl(ep, EPOLL_CTL_DEL, fd, NULL))

/* Waits ms for up to max events and prints them in the order of their letters. DUE: for
 * what is there or on its way to this thread, however late that runs. SOON: to find that
 * there is nothing. */
#define DUE  10000
#define SOON 150
int got(int on, int max, int ms);

#endif
