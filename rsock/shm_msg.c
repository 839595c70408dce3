/*
 * shm_msg.c - messages with descriptors, both ways. Progress thread.
 */
#include "rsock/shm_msg.h"

#include <errno.h>
#include <string.h>

#include "rsock/strange.h"
#include "rsock/sys.h"

union control {
    struct cmsghdr align;
    char room[CMSG_SPACE(sizeof(int) * SHM_MAX_FDS)];
};

int shm_msg_send(int sock, const void *msg, size_t len, const struct shm_fds *fds)
{
    struct iovec v = {.iov_base = (void *)(uintptr_t)msg, .iov_len = len};
    struct msghdr m = {.msg_iov = &v, .msg_iovlen = 1};
    union control control;
    ssize_t n;

    if (fds && fds->n) {
        const size_t size = sizeof(int) * (size_t)fds->n;
        struct cmsghdr *c;

        memset(&control, 0, sizeof control);
        m.msg_control = &control;
        m.msg_controllen = CMSG_SPACE(size);
        c = CMSG_FIRSTHDR(&m);
        c->cmsg_level = SOL_SOCKET;
        c->cmsg_type = SCM_RIGHTS;
        c->cmsg_len = CMSG_LEN(size);
        memcpy(CMSG_DATA(c), fds->fd, size);
    }
    n = sys_sendmsg(sock, &m, MSG_DONTWAIT | MSG_NOSIGNAL);
    return n < 0 ? (int)n : (size_t)n == len ? 0 : -EPROTO;
}

ssize_t shm_msg_recv(int sock, void *msg, size_t len, struct shm_fds *fds)
{
    int all[STRANGE_FDS], flags;
    unsigned count;
    ssize_t n = strange_recv(sock, msg, len, all, &count, &flags);

    fds->n = 0;
    for (unsigned i = 0; i < count; i++) {
        if (i < SHM_MAX_FDS)
            fds->fd[fds->n++] = all[i];
        else
            strange_close(all[i]);
    }
    if (n >= 0 && (count > SHM_MAX_FDS || flags & (MSG_TRUNC | MSG_CTRUNC))) {
        shm_fds_close(fds);
        return -EPROTO;
    }
    return n;
}

void shm_fds_close(struct shm_fds *fds)
{
    for (int i = 0; i < fds->n; i++)
        strange_close(fds->fd[i]);
    fds->n = 0;
}

int shm_fds_take(struct shm_fds *fds, int i)
{
    int fd = fds->fd[i];

    fds->fd[i] = -1;
    return fd;
}
