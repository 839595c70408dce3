/*
 * pl_rights.c - descriptors that go to another process in a message (SCM_RIGHTS), or come from one: given.c's, in
 * ipoib_fallback, says which connections board where they have come to.
 *
 * Called by the application on any thread.
 */
#include "preload/pl_own.h"
#include "preload/pl_signal.h"

#include "config/reason.h"
#include "rsock/sys.h"

#include <errno.h>
#include <limits.h>
#include <string.h>

enum { MOST_PASSED = 253 }; /* the kernel's SCM_MAX_FD: more are refused */

/* The next header of control data at *at, which goes on behind it: 1, or 0 at the end, or -EINVAL: the kernel, which
 * refuses the message then, finds no such length in what there is. */
static int next_control(const struct msghdr *msg, size_t *at, struct cmsghdr *head)
{
    size_t left = msg->msg_controllen - *at;

    if (left < sizeof(*head))
        return 0;
    memcpy(head, (const char *)msg->msg_control + *at, sizeof(*head));
    if (head->cmsg_len < sizeof(*head) || head->cmsg_len > left)
        return -EINVAL;
    *at += CMSG_ALIGN(head->cmsg_len) < left ? CMSG_ALIGN(head->cmsg_len) : left;
    return 1;
}

/* The numbers in its control data: how many. None where the kernel refuses it. */
static size_t numbers_in(const struct msghdr *msg, int fds[MOST_PASSED])
{
    size_t at = 0, from = 0, n, cnt = 0;
    struct cmsghdr head;
    int r;

    if (!msg || !msg->msg_control || msg->msg_controllen > INT_MAX)
        return 0;
    while ((r = next_control(msg, &at, &head)) > 0) {
        n = (head.cmsg_len - sizeof(head)) / sizeof(fds[0]);
        if (head.cmsg_level == SOL_SOCKET && head.cmsg_type == SCM_RIGHTS) {
            if (n > MOST_PASSED - cnt)
                return 0;
            memcpy(fds + cnt, (const char *)msg->msg_control + from + sizeof(head),
                   n * sizeof(fds[0]));
            cnt += n;
        }
        from = at;
    }
    return r == 0 ? cnt : 0;
}

/* ---- sent */

static void give(int fd)
{
    PL_HELD f = pl_hold(fd);

    if (f && f->kind == PL_STREAM) {
        pl_give_away(f, RSN_SHARED);
        fb_giving(f->stream, fd);
    } else if (f && f->kind == PL_EPOLL) {
        pl_epoll_give(f);
    } else {
        pl_made_away(fd);
    }
}

bool pl_passes(const struct msghdr *msg)
{
    int fds[MOST_PASSED];
    size_t cnt;

    if ((pl_tracks_nothing() && !pl_made_ever()) || !msg || !msg->msg_control)
        return false;
    cnt = numbers_in(msg, fds);
    for (size_t i = 0; i < cnt; i++)
        give(fds[i]);
    return cnt > 0;
}

void pl_passes_in(const struct mmsghdr *msgs, unsigned int cnt)
{
    for (unsigned int i = 0; msgs && i < cnt && i < IOV_MAX; i++)
        (void)pl_passes(&msgs[i].msg_hdr);
}

void pl_not_passed(const struct msghdr *msg)
{
    int fds[MOST_PASSED], saved = errno;
    size_t cnt = numbers_in(msg, fds);

    for (size_t i = 0; i < cnt; i++) {
        PL_HELD f = pl_hold(fds[i]);

        if (f && f->kind == PL_STREAM)
            fb_not_given(f->stream);
    }
    errno = saved;
}

/* ---- received */

/* Once it has looked at a message without taking it, numbers that it has received may stand for what it will receive again. */
static _Atomic bool peeked;

static void arrived(int fd, int32_t giver)
{
    struct fb_stream *s;

    pl_drop_stale(fd);
    if (atomic_load(&peeked) || giver <= 0 || !pl_started() || !pl_is_owner_here() ||
        !pl_is_tcp(fd))
        return;
    pl_signals_on();
    PL_SECTION;
    s = fb_arrived(fd, giver);
    if (!s)
        return;
    if (fd <= 2)
        fb_pin(s, RSN_STDIO_FD, false);
    if (!pl_install(fd, PL_STREAM, s))
        fb_put(s);
}

void pl_arrives(int via, const struct msghdr *msg, int flags)
{
    struct ucred who = {0, 0, 0};
    socklen_t len = sizeof(who);
    int fds[MOST_PASSED], saved = errno;
    size_t cnt = numbers_in(msg, fds);

    if (cnt == 0)
        return;
    if (flags & MSG_PEEK)
        atomic_store(&peeked, true);
    if (sys_getsockopt(via, SOL_SOCKET, SO_PEERCRED, &who, &len) < 0)
        who.pid = 0;
    for (size_t i = 0; i < cnt; i++)
        arrived(fds[i], who.pid);
    errno = saved;
}
