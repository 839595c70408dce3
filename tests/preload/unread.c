/*
 * unread.c - a stream boards while bytes of it are unread, and then something that sees no rail is
 * to read them: splice and stdio get all of them, and nothing else; whom it is passed to, or what
 * is executed, gets all of them, or a reset. Receives with MSG_TRUNC pass over as many as they say.
 */
#include "crossed.h"

#include <fcntl.h>
#include <sys/wait.h>

enum { PAIRS = 10, MOST_PAIRS = 200 /* until one has crossed, on a busy machine */ };

enum { SPLICED, BY_STDIO, PASSED, EXECUTED, PASSED_OVER, WAYS };

static bool spliced(int fd)
{
    char got[ALL + 64];
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
    return n == ALL && as_sent(got);
}

static bool passed_over(int fd)
{
    char got[9];
    size_t n = 0;

    while (n < ALL) {
        ssize_t r = recv(fd, NULL, 7, MSG_TRUNC);

        n += r > 0 ? (size_t)r : 0;
        if (r <= 0 || n >= ALL)
            break;
        r = recv(fd, got, sizeof(got), 0);
        for (ssize_t i = 0; i < r; i++)
            if (got[i] != sent_byte(n + (size_t)i))
                return false;
        n += r > 0 ? (size_t)r : 0;
    }
    return n == ALL && recv(fd, NULL, 1, MSG_TRUNC | MSG_DONTWAIT) == -1 && errno == EAGAIN;
}

/* The number is the program's as before, and goes with the stream, or becomes the other file's. */
static bool by_stdio(int fd, int peer, bool again)
{
    FILE *f = fdopen(fd, "r+");
    char got[ALL], back[16] = "";
    bool right;

    must(f != NULL, "fdopen");
    right = fread(got, 1, ALL, f) == ALL && as_sent(got) && fileno(f) == fd;
    right = right && fputs("back", f) > 0;
    if (again) {
        f = freopen("/dev/null", "r", f);
        must(f != NULL, "freopen");
        right = right && fgetc(f) == EOF && read(fd, got, 1) == 0;
    }
    right = fclose(f) == 0 && is_closed(fd) && right;
    return right && recv(peer, back, 4, MSG_WAITALL) == 4 && strcmp(back, "back") == 0 &&
           recv(peer, back, 4, 0) == 0;
}

/* What the library says where it resets is not to be seen. Returns what stands for stderr. */
static int silence(void)
{
    int err = dup(2), null = open("/dev/null", O_WRONLY);

    must(dup2(null, 2) == 2, "dup2");
    close(null);
    return err;
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
    int pair[2], err;

    must(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0, "socketpair");
    memset(&control, 0, sizeof(control));
    control.head.cmsg_level = SOL_SOCKET;
    control.head.cmsg_type = SCM_RIGHTS;
    control.head.cmsg_len = CMSG_LEN(sizeof(int));
    memcpy(CMSG_DATA(&control.head), &fd, sizeof(fd));
    err = silence();
    must(sendmsg(pair[0], &m, 0) == 1, "sendmsg");
    dup2(err, 2);
    close(err);
    close(fd);
    v.iov_base = &x;
    must(recvmsg(pair[1], &m, 0) == 1, "recvmsg");
    memcpy(&fd, CMSG_DATA(&control.head), sizeof(fd));
    close(pair[0]);
    close(pair[1]);
    while (n < ALL && (r = syscall(SYS_read, fd, got + n, ALL - n)) > 0)
        n += (size_t)r;
    close(fd);
    return n == ALL ? as_sent(got) : n == 0 && r < 0 && (errno == ECONNRESET || errno == ENOTCONN);
}

/* A child connects, and becomes a program that copies what it has not read. */
static void become_head(const struct sockaddr_in *at, int go, int out)
{
    char *argv[] = {"sh", "-c", "exec head -c 400 <&9", NULL}, bytes[64] = "ping", x;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    must(connect(fd, (const struct sockaddr *)at, sizeof(*at)) == 0, "connect");
    at_once(fd);
    must(dup2(fd, 9) == 9, "dup2");
    do {
        must(write(9, bytes, sizeof(bytes)) == sizeof(bytes), "write");
        must(read(go, &x, 1) == 1, "go on");
    } while (x == 'x');
    silence();
    dup2(out, 1);
    execvp("sh", argv);
    _exit(1);
}

static bool executed(bool *crossed)
{
    char got[ALL + 1], bytes[64];
    size_t n = 0;
    ssize_t r;
    int go[2], out[2], fd;
    struct sockaddr_in at;
    int l = listener(&at);
    pid_t child;

    must(pipe2(go, O_CLOEXEC) == 0 && pipe2(out, O_CLOEXEC) == 0, "pipe");
    child = fork();
    must(child >= 0, "fork");
    if (child == 0)
        become_head(&at, go[0], out[1]);
    close(out[1]);
    fd = accept4(l, NULL, NULL, SOCK_CLOEXEC);
    must(fd >= 0, "accept");
    close(l);
    *crossed = fill(fd, &(struct other){.fd = -1, .go = go[1]});
    must(recv(fd, bytes, sizeof(bytes), MSG_WAITALL) == sizeof(bytes), "recv");
    must(write(go[1], "e", 1) == 1, "execute");
    while (n <= ALL && (r = read(out[0], got + n, ALL + 1 - n)) > 0)
        n += (size_t)r;
    close(out[0]);
    close(go[0]);
    close(go[1]);
    close(fd);
    must(waitpid(child, NULL, 0) == child, "waitpid");
    return n == 0 || (n == ALL && as_sent(got));
}

/* The i-th pair of that way. */
static bool right_by(int way, int i, bool *crossed)
{
    bool right;
    int p[2];

    if (way == EXECUTED)
        return executed(crossed);
    *crossed = unread_pair(p);
    if (way == BY_STDIO) {
        right = by_stdio(p[0], p[1], i % 2 == 0);
    } else if (way == PASSED) {
        right = passed(p[0]);
    } else {
        right = way == SPLICED ? spliced(p[0]) : passed_over(p[0]);
        close(p[0]);
    }
    close(p[1]);
    return right;
}

int main(void)
{
    int right[WAYS] = {0}, switches[WAYS] = {0};

    for (int i = 0; i < MOST_PAIRS; i++)
        for (int way = 0; way < WAYS; way++) {
            bool crossed;

            if (i < PAIRS)
                right[way] += right_by(way, i, &crossed);
            else if (mode_rail() && switches[way] == 0)
                right[way] -= !right_by(way, i, &crossed);
            else
                continue;
            switches[way] += crossed;
        }
    for (int i = 0; i < WAYS && mode_rail(); i++)
        if (switches[i] == 0)
            printf("%d: no switch behind unread bytes\n", i);
    printf(
        "of %d each: %d right by splice, %d by stdio, %d with MSG_TRUNC; right or reset: %d where it was passed on, %d "
        "where a program was executed\n",
        PAIRS, right[SPLICED], right[BY_STDIO], right[PASSED_OVER], right[PASSED], right[EXECUTED]);
    return 0;
}
