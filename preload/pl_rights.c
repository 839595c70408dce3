/*
 * pl_rights.c - descriptors that go to another process in a message (SCM_RIGHTS), or come from one:
 * given.c's, in ipoib_fallback, says which connections board where they have come to.
 *
 * Called by the application on any thread.
 */
#include "preload/pl_own.h"
#include "preload/pl_signal.h"

#include "config/env.h"
#include "config/reason.h"
#include "rsock/sys.h"

#include <errno.h>
#include <limits.h>
#include <string.h>

enum { MOST_PASSED = 253 }; /* the kernel's SCM_MAX_FD: more are refused */

/* Reads the header of control data at *at and moves *at behind its data: 1; 0 at the end; -EINVAL
 * if there is not as much as its length says, for which the kernel refuses the message. */
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

/* Who has made the socket, or listened for it; 0: not known. */
static int32_t maker_of(int via)
{
    struct ucred who = {0, 0, 0};
    socklen_t len = sizeof(who);

    return sys_getsockopt(via, SOL_SOCKET, SO_PEERCRED, &who, &len) < 0 ? 0 : who.pid;
}

/* ---- sent */

static void passes_untracked(int via, int fd)
{
    PL_SECTION;
    if (pl_is_tcp(fd))
        fb_untracked(fd, maker_of(via));
}

/* *stream: referenced, if it may be given, else NULL. */
static void give(int via, int fd, struct fb_stream **stream)
{
    PL_HELD f = pl_hold(fd);

    *stream = NULL;
    if (f && f->kind == PL_STREAM) {
        bool may = fb_may_give(f->stream) && (!atomic_load(&pl_rings) || cfg.ring_for_files);

        pl_give_away(f, RSN_SHARED);
        if (!may)
            return;
        fb_giving(f->stream, fd);
        fb_get(f->stream);
        *stream = f->stream;
    } else if (f && f->kind == PL_EPOLL) {
        pl_epoll_give(f);
    } else {
        pl_made_away(fd);
        passes_untracked(via, fd);
    }
}

struct fb_stream *pl_passes(int via, const struct msghdr *msg)
{
    struct fb_stream *s = NULL;
    int fds[MOST_PASSED];
    size_t cnt;

    if ((pl_tracks_nothing() && !pl_made_ever()) || !msg || !msg->msg_control)
        return NULL;
    cnt = numbers_in(msg, fds);
    for (size_t i = 0; i < cnt; i++) {
        if (s)
            fb_put(s);
        give(via, fds[i], &s);
    }
    if (s && cnt > 1) {
        fb_put(s);
        s = NULL;
    }
    return s;
}

void pl_passes_untold(int via, const struct msghdr *msg)
{
    struct fb_stream *s = pl_passes(via, msg);

    if (s)
        fb_put(s);
}

void pl_passes_in(int via, const struct mmsghdr *msgs, unsigned int cnt)
{
    for (unsigned int i = 0; msgs && i < cnt && i < IOV_MAX; i++)
        pl_passes_untold(via, &msgs[i].msg_hdr);
}

/* ---- received */

/* Once it has looked at a message without taking it, numbers that it has received may stand for
 * what it will receive again. */
static _Atomic bool peeked;

static void arrived(int fd, int32_t giver)
{
    struct fb_stream *s;
    PL_SECTION;

    if (atomic_load(&peeked)) {
        fb_untracked(fd, giver);
        return;
    }
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
    int fds[MOST_PASSED], saved = errno;
    size_t cnt = numbers_in(msg, fds);
    int32_t giver = -1;

    if (cnt == 0 || !pl_started() || !pl_is_owner_here())
        return;
    if (flags & MSG_PEEK)
        atomic_store(&peeked, true);
    for (size_t i = 0; i < cnt; i++) {
        pl_drop_stale(fds[i]);
        if (!pl_is_tcp(fds[i]))
            continue;
        if (giver < 0)
            giver = maker_of(via);
        pl_signals_on();
        arrived(fds[i], giver);
    }
    errno = saved;
}
