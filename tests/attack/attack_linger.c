/*
 * attack_linger.c - sockets that keep whoever drops the last reference to them: TCP with SO_LINGER,
 * whose peer reads nothing, sent along with what the victim reads, or throws away. The kernel waits
 * in the one that drops it.
 *
 *   attack knock UID PORT PID   such ones in requests for a rail without a connection, in several
 *                               ways; then it waits for its end. The process is to be stopped
 *                               meanwhile: else it may have dropped its reference before we drop
 *                               ours
 */
#include "tests/attack/attack.h"

#include "rsock/shm_bell.h"
#include "rsock/shm_wire.h"
#include "rsock/strange.h"
#include "rsock/sys.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <sys/socket.h>

static int lingering(void)
{
    const struct linger long_ = {1, 1000000};
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof at;
    int l = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    static char bytes[65536];

    if (bind(l, (struct sockaddr *)&at, sizeof at) || listen(l, 1) ||
        getsockname(l, (struct sockaddr *)&at, &len))
        DIE("listen: %s", strerror(errno));
    (void)connect(fd, (struct sockaddr *)&at, sizeof at);
    if (accept(l, NULL, NULL) < 0) /* stays open, and is not read */
        DIE("accept: %s", strerror(errno));
    close(l);
    while (send(fd, bytes, sizeof bytes, MSG_NOSIGNAL) > 0)
        ;
    if (setsockopt(fd, SOL_SOCKET, SO_LINGER, &long_, sizeof long_))
        DIE("SO_LINGER: %s", strerror(errno));
    return fd;
}

/* With a message, which has the last reference then. False: it did not go. */
static bool sent_with(int sock, const void *msg, size_t n, int fd)
{
    union {
        struct cmsghdr align;
        char room[CMSG_SPACE(sizeof fd)];
    } control = {0};
    struct iovec v = {(void *)(uintptr_t)msg, n};
    struct msghdr m = {
        .msg_iov = &v, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control};
    struct cmsghdr *c = CMSG_FIRSTHDR(&m);
    bool ok;

    c->cmsg_level = SOL_SOCKET;
    c->cmsg_type = SCM_RIGHTS;
    c->cmsg_len = CMSG_LEN(sizeof fd);
    memcpy(CMSG_DATA(c), &fd, sizeof fd);
    ok = sendmsg(sock, &m, MSG_DONTWAIT | MSG_NOSIGNAL) == (ssize_t)n;
    if (ok)
        close(fd);
    else
        strange_close(fd); /* or we would be the ones who wait */
    return ok;
}

/* A unix socket that has it among what nobody has read, and an empty message before that. */
static int nested(void)
{
    int pair[2];

    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) ||
        send(pair[0], "", 0, MSG_DONTWAIT) || !sent_with(pair[0], "x", 1, lingering()))
        DIE("socketpair: %s", strerror(errno));
    close(pair[0]);
    return pair[1];
}

void linger_bells(struct victim *v)
{
    unsigned n = 0;

    /* Both ends of each of the bells: theirs, which we were given, and ours. */
    for (int fd = 3; fd < 1024; fd++) {
        socklen_t len = sizeof(int);
        int domain = 0, type = 0;

        if (getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &len) || domain != AF_UNIX ||
            getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &len) || type != SOCK_STREAM)
            continue;
        n += sent_with(fd, "", 1, lingering());
        n += sent_with(fd, "", 1, nested());
    }
    if (n < 2)
        DIE("no bell to send to");
    for (int i = 0; i < 500; i++)
        if (round_trip(v, 100))
            DIE("no answer any more");
}

int linger_knock(char **who)
{
    const struct shm_request bad = {.head = {.magic = 1}};
    uint32_t uid = (uint32_t)atoi(who[0]), pid = (uint32_t)atoi(who[2]);
    uint16_t port = (uint16_t)atoi(who[1]);

    for (int i = 0; i < 4; i++) {
        int sock = rogue_dial(uid, port, pid);

        if (!sent_with(sock, &bad, sizeof bad, i % 2 ? nested() : lingering()))
            DIE("send: %s", strerror(errno));
        /* Behind what is thrown away, and what nobody looks at. */
        (void)sent_with(sock, &bad, sizeof bad, lingering());
        if (i >= 2)
            close(sock);
    }
    puts("knocked");
    pause();
    return 0;
}
