/*
 * heir_fake.c - for tests of one process: nothing was inherited, nothing is lent. And a number that
 * is lost, which is all that a stream of theirs knows of its end.
 */
#include "preload/pl_own.h"

_Atomic bool pl_heirs;

void pl_heir_keep(struct fb_heritage *h, _Atomic(_Atomic(struct pl_file *) *) *root,
                  uint32_t chunks)
{
    (void)h, (void)root, (void)chunks;
}

struct pl_file *pl_heir_get(int fd)
{
    (void)fd;
    return NULL;
}

void pl_heir_drop_here(int fd)
{
    (void)fd;
}

bool fb_epoll_elsewhere(uint64_t id)
{
    (void)id;
    return false;
}

void fb_epoll_gone(uint64_t id)
{
    (void)id;
}

void fb_disconnected(struct fb_stream *s, int fd)
{
    (void)fd;
    atomic_fetch_sub(&s->fds, 1);
}
