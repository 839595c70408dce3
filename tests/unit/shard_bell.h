/*
 * shard_bell.h - for the tests of shards: a rail of which only the news matters, and bells for
 * peers of this user and of others.
 */
#ifndef TESTS_UNIT_SHARD_BELL_H
#define TESTS_UNIT_SHARD_BELL_H

#include "tests/shim/shim.h"

#include <fcntl.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "rsock/shard_part.h"
#include "rsock/shm_bell.h"
#include "rsock/shm_ring.h"
#include "rsock/sys.h"

static int bell_fd;

static void fd_added(void *arg, int fd)
{
    int ep = *(int *)arg;
    struct epoll_event ev = {.events = EPOLLIN | EPOLLET, .data.fd = fd};

    bell_fd = fd;
    if (ep >= 0)
        ASSERT_EQ_INT(sys_epoll_ctl(ep, EPOLL_CTL_ADD, fd, &ev), 0);
}

/* A rail of which only the news matters. */
static _Atomic unsigned news;
static _Atomic int notified;

static unsigned fake_poll(struct rsk_rail *r, unsigned events)
{
    (void)r;
    return RSK_CTL & events;
}

static void fake_notify(struct rsk_rail *r, unsigned events)
{
    (void)r, (void)events;
    atomic_exchange(&news, 0);
    atomic_fetch_add(&notified, 1);
}

static const struct rsk_wire fake_wire = {.name = "fake", .poll = fake_poll};
static struct rsk_rail fake = {.wire = &fake_wire, .notify = fake_notify};

/* The bell for peers of a user: 0 is our own. */
static struct shm_bell *bell_for(struct rsk_shard *s, uint32_t uid)
{
    struct shm_bell *b = NULL;

    (void)shm_bell_of(s, &(struct shm_cred){.uid = uid, .pid = 1, .alike = uid == 0}, &b);
    return b;
}

const struct rsk_wire rsk_verbs_wire = {.name = "not in this test"};

/* The bell for another user is a socket. */
struct foreign {
    struct rsk_shard *s;
    struct shm_bell *b;
    uint32_t slot;
    int page, event; /* what the peer is given */
    struct shm_peer_bell *peer;
};

static void foreign_bell(struct foreign *f, int *ep)
{
    f->s = rsk_shard_new(fd_added, ep);
    ASSERT(f->s != NULL);
    f->b = bell_for(f->s, geteuid() + 1);
    ASSERT(f->b != NULL);
    f->slot = (uint32_t)shm_bell_reserve(f->b);
    shm_bell_set(f->b, f->slot, &fake);
    shm_bell_fds(f->b, &f->page, &f->event);
    ASSERT_EQ_INT(
        shm_peer_bell_get(sys_hide_fd(dup(f->page)), sys_hide_fd(dup(f->event)),
                          &(struct shm_cred){.uid = geteuid() + 1, .pid = (uint32_t)getpid()},
                          &f->peer),
        0);
}

static void foreign_put(struct foreign *f)
{
    shm_peer_bell_put(f->peer);
    rsk_shard_put(f->s);
}

#endif
