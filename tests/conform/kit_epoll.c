/*
 * kit_epoll.c - see kit_epoll.h.
 */
#include "tests/conform/kit_epoll.h"

int ep, p[2];

const struct order orders[ORDERS] = {{"boarded_registered", true}, {"boarded_before", false}};

int ctl(int on, int op, int fd, unsigned events, char letter)
{
    struct epoll_event e = {events, {.u32 = (unsigned char)letter}};

    return epoll_ctl(on, op, fd, &e);
}

void begin(const struct order *f)
{
    ep = epoll_create1(EPOLL_CLOEXEC);
    if (!f->registered_first) {
        pair(p);
        return;
    }
    pair_raw(&net4, p);
    must(ctl(ep, EPOLL_CTL_ADD, p[0], 0, '-') == 0 && ctl(ep, EPOLL_CTL_ADD, p[1], 0, '-') == 0,
         "ADD");
    board(p[0], p[1]);
    must(epoll_ctl(ep, EPOLL_CTL_DEL, p[0], NULL) == 0 &&
             epoll_ctl(ep, EPOLL_CTL_DEL, p[1], NULL) == 0,
         "DEL");
}

static int by_letter(const void *a, const void *b)
{
    return (int)((const struct epoll_event *)a)->data.u32 -
           (int)((const struct epoll_event *)b)->data.u32;
}

int got(int on, int max, int ms)
{
    struct epoll_event e[64];
    int n;

    errno = CLEAN;
    n = epoll_wait(on, e, max, ms);
    if (n < 0) {
        show("epoll_wait", n, errno);
        return n;
    }
    qsort(e, (size_t)n, sizeof(e[0]), by_letter);
    say("%d event%s", n, n == 1 ? "" : "s");
    for (int i = 0; i < n; i++) {
        char name[2] = {(char)e[i].data.u32, 0};

        say_events(name, (int)e[i].events);
    }
    return n;
}
