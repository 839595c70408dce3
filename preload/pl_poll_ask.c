/*
 * pl_poll_ask.c - poll's look at the kernel's part of a set, and when it need not be had. Programs
 * that wait for a rail and for a connection that is mostly silent would ask the kernel at every
 * call, which takes longer than all the rest: a call that would wait does not ask again for a while
 * (PL_KERNEL_NS). What becomes ready in the kernel in that time is told that much later, and only
 * if a rail has something to tell first; else the call goes on, and asks.
 *
 * Any application thread, which remembers its own last look.
 */
#include "preload/pl_poll.h"

#include "rsock/sys.h"

enum { ASKED_MOST = 4 };
static _Thread_local struct {
    uint64_t at;
    unsigned n;
    struct {
        int fd;
        short events;
    } of[ASKED_MOST];
} asked_last;

bool pl_poll_asked_lately(const struct pollfd *set, nfds_t size)
{
    unsigned n = 0;

    if (!rsk_quiet() || sys_now() - asked_last.at >= PL_KERNEL_NS)
        return false;
    for (nfds_t i = 0; i < size; i++) {
        if (set[i].fd < 0)
            continue;
        if (n == asked_last.n || asked_last.of[n].fd != set[i].fd ||
            asked_last.of[n].events != set[i].events)
            return false;
        n++;
    }
    return n == asked_last.n;
}

int pl_poll_ask(struct pollfd *set, nfds_t size)
{
    static const struct timespec zero;
    uint64_t at = sys_now();
    unsigned n = 0;
    int said;

    rsk_sig.quiet = 0;
    said = sys_ppoll(set, size, &zero, NULL);
    if (said != 0)
        return said;
    for (nfds_t i = 0; i < size; i++) {
        if (set[i].fd < 0)
            continue;
        if (n == ASKED_MOST)
            return 0;
        asked_last.of[n].fd = set[i].fd;
        asked_last.of[n++].events = set[i].events;
    }
    asked_last.n = n;
    asked_last.at = at;
    rsk_sig.quiet = rsk_sig.ids + 1;
    return 0;
}

/* True for a file of ours that is not being closed, and for what is no TCP socket: Java closes a
 * connection by a dup2 over its number, and others may have given the number to a file. */
static bool stands_for_another(int fd)
{
    struct pl_file *f = pl_get(fd);
    bool yes = f ? atomic_load(&f->closing) == 0 : !pl_is_tcp(fd);

    if (f)
        pl_put(f);
    return yes;
}

/* A handler that is put off does not wait for it. */
void pl_poll_until_closed(int fd, uint64_t limit)
{
    while (!stands_for_another(fd) && sys_fcntl(fd, F_GETFD, 0) >= 0 && sys_now() < limit &&
           !rsk_sig.pending)
        sys_yield();
}
