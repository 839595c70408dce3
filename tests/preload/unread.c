/*
 * unread.c - a stream boards while bytes of it are unread, and then something that sees no rail is to read them: splice
 * and stdio get all of them, and nothing else; whom it is passed to gets all of them, or a reset.
 */
#include "pair.h"

#include <fcntl.h>

enum { PAIRS = 40, PIECE = 10, PIECES = 40, ALL = PIECE * PIECES };

static char sent[ALL];

static void connect_pair(int p[2])
{
    struct sockaddr_in at;
    int l = listener(&at);
    char hello[100] = "hello";

    p[0] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    must(connect(p[0], (struct sockaddr *)&at, sizeof(at)) == 0, "connect");
    p[1] = accept4(l, NULL, NULL, SOCK_CLOEXEC);
    close(l);
    must(write(p[0], hello, sizeof(hello)) == sizeof(hello), "hello");
    must(recv(p[1], hello, sizeof(hello), MSG_WAITALL) == sizeof(hello), "hello");
    for (int i = 0; i < PIECES; i++) {
        must(write(p[1], sent + i * PIECE, PIECE) == PIECE, "write");
        usleep(300);
    }
}

static bool spliced(int fd)
{
    char got[ALL];
    size_t n = 0;
    int p[2];

    must(pipe(p) == 0, "pipe");
    while (n < ALL) {
        ssize_t r = splice(fd, NULL, p[1], NULL, 64, 0);

        if (r <= 0 || read(p[0], got + n, (size_t)r) != r)
            break;
        n += (size_t)r;
    }
    close(p[0]);
    close(p[1]);
    return n == ALL && memcmp(got, sent, ALL) == 0;
}

/* The number is the program's as before, and goes with the stream, or becomes the other file's. */
static bool by_stdio(int fd, int peer, bool again)
{
    FILE *f = fdopen(fd, "r+");
    char got[ALL], back[16] = "";
    bool right;

    must(f != NULL, "fdopen");
    right = fread(got, 1, ALL, f) == ALL && memcmp(got, sent, ALL) == 0 && fileno(f) == fd;
    right = right && fputs("back", f) > 0;
    if (again) {
        f = freopen("/dev/null", "r", f);
        must(f != NULL, "freopen");
        right = right && fgetc(f) == EOF;
    }
    right = fclose(f) == 0 && fcntl(fd, F_GETFD) < 0 && right;
    return right && recv(peer, back, 4, MSG_WAITALL) == 4 && strcmp(back, "back") == 0 &&
           recv(peer, back, 4, 0) == 0;
}

/* Over a socket, and read under the number that it has then: all, or a reset. */
static bool passed(int fd)
{
    union {
        struct cmsghdr head;
        char room[CMSG_SPACE(sizeof(int))];
    } control;
    struct iovec v = {"x", 1};
    struct msghdr m = {
        .msg_iov = &v, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof(control)};
    char got[ALL], x;
    size_t n = 0;
    ssize_t r;
    int pair[2], err = dup(2), null = open("/dev/null", O_WRONLY);

    must(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0, "socketpair");
    memset(&control, 0, sizeof(control));
    control.head.cmsg_level = SOL_SOCKET;
    control.head.cmsg_type = SCM_RIGHTS;
    control.head.cmsg_len = CMSG_LEN(sizeof(int));
    memcpy(CMSG_DATA(&control.head), &fd, sizeof(fd));
    /* The library says there that it resets. */
    must(dup2(null, 2) == 2, "dup2");
    must(sendmsg(pair[0], &m, 0) == 1, "sendmsg");
    dup2(err, 2);
    close(err);
    close(null);
    close(fd);
    v.iov_base = &x;
    must(recvmsg(pair[1], &m, 0) == 1, "recvmsg");
    memcpy(&fd, CMSG_DATA(&control.head), sizeof(fd));
    close(pair[0]);
    close(pair[1]);
    while (n < ALL && (r = syscall(SYS_read, fd, got + n, ALL - n)) > 0)
        n += (size_t)r;
    close(fd);
    return n == ALL ? memcmp(got, sent, ALL) == 0
                    : n == 0 && r < 0 && (errno == ECONNRESET || errno == ENOTCONN);
}

int main(void)
{
    int right[3] = {0, 0, 0};

    for (int i = 0; i < ALL; i++)
        sent[i] = (char)('a' + i * 7 % 26);
    for (int i = 0; i < 3 * PAIRS; i++) {
        int p[2];

        connect_pair(p);
        if (i % 3 == 0) {
            right[0] += spliced(p[0]);
            close(p[0]);
        } else if (i % 3 == 1) {
            right[1] += by_stdio(p[0], p[1], i % 2);
        } else {
            right[2] += passed(p[0]);
        }
        close(p[1]);
    }
    printf(
        "of %d each: %d right by splice, %d by stdio, %d right or reset where it was passed on\n",
        PAIRS, right[0], right[1], right[2]);
    return 0;
}
