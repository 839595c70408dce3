/*
 * limits.c - arguments at and beyond their limits: huge and odd vectors, lengths, bad pointers and
 * descriptors: readv(2), recv(2), send(2), poll(2), POSIX.
 */
#include "tests/conform/kit.h"

#include <limits.h>
#include <sys/epoll.h>
#include <sys/select.h>
#include <sys/sendfile.h>

static int p[2];
/* Unknown to the compiler, which would refuse what is wrong on purpose. */
static void *volatile null;
static void *volatile wild = (void *)8;
static volatile int too_many = IOV_MAX + 1, negative = -1;
static volatile size_t huge = (size_t)1 << 62;

CASE(vector_of_1024)
{
    static struct iovec out[IOV_MAX], in[IOV_MAX];
    static char bytes[IOV_MAX * 3], got[IOV_MAX * 3];

    pair(p);
    for (size_t i = 0; i < sizeof(bytes); i++)
        bytes[i] = (char)pattern(i);
    for (size_t i = 0; i < IOV_MAX; i++) {
        out[i] = (struct iovec){bytes + 3 * i, 3};
        in[IOV_MAX - 1 - i] = (struct iovec){got + sizeof(got) - 3 * (i + 1), 3};
    }
    SHOW(writev(p[0], out, IOV_MAX));
    arrived(p[1], sizeof(bytes));
    SHOW(readv(p[1], in, IOV_MAX));
    say("the same %d", memcmp(bytes, got, sizeof(got)) == 0);
}

CASE(vector_of_too_many)
{
    static struct iovec v[IOV_MAX + 1];

    pair(p);
    SHOW(readv(p[1], v, too_many));
    SHOW(writev(p[0], v, too_many));
    SHOW(readv(p[1], v, negative));
    SHOW(writev(p[0], v, negative));
    SHOW(readv(p[1], v, 0));
    SHOW(writev(p[0], v, 0));
}

CASE(vector_with_a_length_that_is_negative)
{
    char byte = 'x';
    struct iovec v[2] = {{&byte, 1}, {&byte, huge * 2}};

    pair(p);
    SHOW(writev(p[0], v, 2));
    SHOW(readv(p[1], v, 2));
    v[1].iov_len = huge;
    v[0] = v[1];
    deliver(p[0], p[1], "y");
    SHOW(recv(p[1], &byte, 1, 0));
}

/* What does not fit into one call's 2 GiB is shortened, behind elements that are empty as well. */
CASE(vector_of_more_than_a_call_moves)
{
    static char got[64];
    struct iovec v[3] = {{got, 0}, {got, (size_t)3 << 30}, {got, huge * 2}};
    struct msghdr m = {.msg_iov = v, .msg_iovlen = 2};

    pair(p);
    SHOW(readv(p[1], v, 3));
    deliver(p[0], p[1], "01234");
    SHOW(readv(p[1], v, 2));
    deliver(p[0], p[1], "56789");
    SHOW(recvmsg(p[1], &m, 0));
    say("%.5s", got);
}

CASE(null_buffers)
{
    struct iovec v = {NULL, 5};
    struct msghdr m = {.msg_iov = &v, .msg_iovlen = 1};

    pair(p);
    SHOW(read(p[1], null, 0));
    SHOW(write(p[0], null, 0));
    SHOW(write(p[0], null, 5));
    SHOW(send(p[0], null, 5, 0));
    SHOW(writev(p[0], &v, 1));
    SHOW(sendmsg(p[0], &m, 0));
    SHOW(sendmsg(p[0], null, 0));
    SHOW(writev(p[0], null, 1));
    deliver(p[0], p[1], "0123456789");
    SHOW(read(p[1], null, 5));
    SHOW(recv(p[1], null, 5, 0));
    SHOW(readv(p[1], &v, 1));
    SHOW(recvmsg(p[1], &m, 0));
    SHOW(recvmsg(p[1], null, 0));
    SHOW(readv(p[1], null, 1));
    SHOW(recv(p[1], (char[20]){0}, 20, 0));
}

CASE(wild_buffers)
{
    pair(p);
    SHOW(write(p[0], wild, 5));
    deliver(p[0], p[1], "x");
    SHOW(read(p[1], wild, 5));
    SHOW(recv(p[1], (char[20]){0}, 20, 0));
}

CASE(wild_results)
{
    struct pollfd q = {0, POLLIN, 0};

    pair(p);
    q.fd = p[0];
    SHOW(ioctl(p[0], FIONREAD, null));
    SHOW(getsockopt(p[0], SOL_SOCKET, SO_ERROR, null, null));
    SHOW(setsockopt(p[0], SOL_SOCKET, SO_KEEPALIVE, null, 4));
    SHOW(getsockname(p[0], null, null));
    SHOW(poll(null, 1, 0));
    SHOW(ppoll(&q, 1, wild, NULL));
    SHOW(epoll_wait(epoll_create1(0), null, 1, 0));
}

CASE(huge_length)
{
    pair(p);
    deliver(p[0], p[1], "0123456789");
    {
        char *room = malloc(1 << 20);

        SHOW(read(p[1], room, 1 << 20));
        free(room);
    }
    SHOW(recv(p[1], null, 0, MSG_DONTWAIT));
}

CASE(message_vector)
{
    static struct iovec v[IOV_MAX + 1];
    struct msghdr m = {.msg_iov = v};

    pair(p);
    m.msg_iovlen = (size_t)too_many;
    SHOW(sendmsg(p[0], &m, 0));
    SHOW(recvmsg(p[1], &m, MSG_DONTWAIT));
    m.msg_iovlen = 0;
    SHOW(sendmsg(p[0], &m, 0));
    SHOW(recvmsg(p[1], &m, MSG_DONTWAIT));
    m.msg_iovlen = huge;
    SHOW(sendmsg(p[0], &m, 0));
}

CASE(many_messages)
{
    struct mmsghdr m[50];
    struct iovec v[50];
    char bytes[50], got[50] = "";

    pair(p);
    memset(m, 0, sizeof(m));
    for (int i = 0; i < 50; i++) {
        bytes[i] = (char)pattern((size_t)i);
        v[i] = (struct iovec){&bytes[i], 1};
        m[i].msg_hdr.msg_iov = &v[i];
        m[i].msg_hdr.msg_iovlen = 1;
    }
    SHOW(sendmmsg(p[0], m, 50, 0));
    SHOW(recv(p[1], got, 50, MSG_WAITALL));
    say("the same %d", memcmp(got, bytes, 50) == 0);
    SHOW(sendmmsg(p[0], m, 0, 0));
    SHOW(sendmmsg(p[0], m, 5, 0));
    arrived(p[1], 5);
    SHOW(recvmmsg(p[1], m, 5, MSG_DONTWAIT, NULL));
    SHOW(recvmmsg(p[1], m, 5, MSG_DONTWAIT, NULL));
    SHOW(recvmmsg(p[1], m, 5, 0, &(struct timespec){0, 2000000000}));
}

CASE(poll_limits)
{
    struct pollfd q[3] = {{-1, POLLIN, 7}, {0, POLLIN, 0}, {400, POLLIN, 0}};

    pair(p);
    q[1].fd = p[1];
    deliver(p[0], p[1], "x");
    SHOW(poll(q, 3, -1));
    for (int i = 0; i < 3; i++)
        say_events("revents", q[i].revents);
    SHOW(poll(NULL, 0, 1));
    q[0].fd = ~p[1];
    SHOW(poll(q, 1, 0));
    say_events("revents", q[0].revents);
    q[0] = q[2] = q[1];
    SHOW(poll(q, 3, 0)); /* the same one three times */
    SHOW(poll(q, (nfds_t)huge, 0));
}

CASE(select_limits)
{
    struct timeval tv = {0, 1000}, bad = {0, -1}, odd = {-1, 0};
    fd_set in, out, none;

    pair(p);
    SHOW(select(0, NULL, NULL, NULL, &tv));
    SHOW(select(-1, NULL, NULL, NULL, &tv));
    FD_ZERO(&in);
    FD_SET(p[1], &in);
    SHOW(select(p[1] + 1, &in, NULL, NULL, &bad));
    SHOW(select(p[1] + 1, &in, NULL, NULL, &odd));
    deliver(p[0], p[1], "x");
    until(p[1], POLLOUT);
    out = none = in;
    SHOW(select(p[1] + 1, &in, &out, &none, NULL));
    FD_ZERO(&in);
    FD_SET(p[1], &in);
    SHOW(select(p[1], &in, NULL, NULL, &(struct timeval){0, 0})); /* below it */
    say("%d", FD_ISSET(p[1], &in) != 0);
    FD_ZERO(&in);
    FD_SET(40, &in);
    FD_SET(p[1], &in);
    SHOW(select(41, &in, NULL, NULL, &(struct timeval){0, 0}));
}

/* Linux looks at no number above the process's table of descriptors, which the library's
 * own make larger. */
CASE(select_beyond_the_table)
{
    fd_set in;

    pair(p);
    FD_ZERO(&in);
    FD_SET(500, &in);
    SHOW(select(501, &in, NULL, NULL, &(struct timeval){0, 0}));
}

CASE(time_that_is_left)
{
    struct timeval tv = {20, 0};
    fd_set in;

    pair(p);
    deliver(p[0], p[1], "x");
    FD_ZERO(&in);
    FD_SET(p[1], &in);
    SHOW(select(p[1] + 1, &in, NULL, NULL, &tv));
    say("%d", tv.tv_sec == 19 || (tv.tv_sec == 20 && tv.tv_usec == 0));
}

CASE(files_and_sockets)
{
    int pipes[2];
    off_t at = 0;

    pair(p);
    must(pipe(pipes) == 0, "pipe");
    SHOW(sendfile(p[0], p[1], NULL, 10));
    SHOW(sendfile(p[0], 400, NULL, 10));
    SHOW(sendfile(400, p[0], NULL, 10));
    SHOW(sendfile(p[0], pipes[0], &at, 10));
    SHOW(splice(p[0], &at, pipes[1], NULL, 10, 0));
    SHOW(splice(p[0], NULL, p[1], NULL, 10, 0));
    deliver(p[1], p[0], "spliced");
    SHOW(splice(p[0], NULL, pipes[1], NULL, 100, 0));
    SHOW(tee(p[0], pipes[1], 10, 0));
    SHOW(vmsplice(p[0], NULL, 0, 0));
    SHOW(copy_file_range(p[0], NULL, pipes[1], NULL, 10, 0));
}

CASE(what_a_stream_is_not)
{
    pair(p);
    SHOW(lseek(p[0], 0, SEEK_SET));
    SHOW(preadv(p[0], NULL, 0, 0));
    SHOW(preadv2(p[0], NULL, 0, 0, 0));
    SHOW(pwritev2(p[0], NULL, 0, 5, 0));
    SHOW(preadv2(p[0], &(struct iovec){(char[1]){0}, 1}, 1, -1, RWF_NOWAIT));
    SHOW(pwritev2(p[0], &(struct iovec){(char[1]){'x'}, 1}, 1, -1, RWF_DSYNC));
    SHOW(preadv2(p[0], &(struct iovec){(char[1]){0}, 1}, 1, -1, 1 << 20));
    SHOW(fallocate(p[0], 0, 0, 1));
    SHOW(fdatasync(p[0]));
    SHOW(readlink("/proc/self/fd/0", (char[1]){0}, 0));
}
