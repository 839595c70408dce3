/*
 * netns.c - is a stream's socket of the network namespace that the progress thread is in?
 * Progress thread.
 */
#include "ipoib_fallback/netns.h"

#include "rsock/own.h"

/* The cookie of the network namespace of this thread; 0: not asked yet. */
static uint64_t own_netns;

void netns_moved(void)
{
    own_netns = 0;
}

static uint64_t netns_of(int fd)
{
    uint64_t cookie = 0;
    socklen_t len = sizeof(cookie);

    return sys_getsockopt(fd, SOL_SOCKET, SO_NETNS_COOKIE, &cookie, &len) < 0 ? 0 : cookie;
}

bool netns_another(struct fb_conn *c)
{
    uint64_t its = netns_of(c->fd);

    if (!its) /* an old kernel, which does not say */
        return false;
    if (!own_netns) {
        int fd = rsk_own_fd(sys_socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));

        own_netns = fd < 0 ? 0 : netns_of(fd);
        rsk_own_close(fd);
    }
    return own_netns && its != own_netns;
}
