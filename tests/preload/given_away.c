/*
 * given_away.c - who accepted a connection forks a child that serves it, gives it to a third
 * process as well, and is gone: it becomes that program, starts it and ends, or passes the
 * descriptor on and ends. Child and third process both write to it.
 */
#include "say.h"

#include <spawn.h>

enum { SIZE = 64, ROUNDS = 4000 };
enum way { BECOMES, STARTS, PASSES, STARTS_AND_CLOSES, PASSES_AND_CLOSES };

extern char **environ;

static void put(int fd, const char *words)
{
    char text[SIZE] = {0};

    snprintf(text, sizeof(text), "%s", words);
    must(write(fd, text, SIZE) == SIZE, words);
}

static const char *get(int fd)
{
    static char text[SIZE];
    ssize_t n = recv(fd, text, SIZE, MSG_WAITALL);

    if (n == SIZE)
        return text;
    return n < 0 ? strerrorname_np(errno) : "the end";
}

static void client(const struct sockaddr_in *at)
{
    int fd = socket(AF_INET, SOCK_STREAM, 0);

    must(connect(fd, (const struct sockaddr *)at, sizeof(*at)) == 0, "connect");
    for (int i = 0; i < ROUNDS; i++) {
        put(fd, "again");
        must(strcmp(get(fd), "again") == 0, "again");
    }
    put(fd, "the third one");
    puts(get(fd));
    put(fd, "once more");
    puts(get(fd));
    put(fd, "over");
    fflush(stdout);
    _exit(0);
}

static void child(int fd, int tell)
{
    const char *text;

    while (strcmp(text = get(fd), "over") != 0)
        if (strcmp(text, "the third one") == 0)
            must(write(tell, "", 1) == 1, "pipe");
        else
            put(fd, text);
    _exit(0);
}

static int third(int fd, int told)
{
    char byte;

    if (read(told, &byte, 1) == 1)
        put(fd, "from the third one");
    return 0;
}

static int passed(int from)
{
    char room[CMSG_SPACE(sizeof(int))], byte;
    struct iovec v = {&byte, 1};
    struct msghdr m = {
        .msg_iov = &v, .msg_iovlen = 1, .msg_control = room, .msg_controllen = sizeof(room)};
    int fd;

    must(recvmsg(from, &m, 0) == 1 && CMSG_FIRSTHDR(&m), "recvmsg");
    memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&m)), sizeof(fd));
    return fd;
}

static void pass_on(int to, int fd)
{
    char room[CMSG_SPACE(sizeof(int))] = {0};
    struct iovec v = {"x", 1};
    struct msghdr m = {
        .msg_iov = &v, .msg_iovlen = 1, .msg_control = room, .msg_controllen = sizeof(room)};
    struct cmsghdr *c = CMSG_FIRSTHDR(&m);

    c->cmsg_level = SOL_SOCKET;
    c->cmsg_type = SCM_RIGHTS;
    c->cmsg_len = CMSG_LEN(sizeof(fd));
    memcpy(CMSG_DATA(c), &fd, sizeof(fd));
    must(sendmsg(to, &m, 0) == 1, "sendmsg");
}

static void owner(int l, enum way way)
{
    int told[2], un[2], fd;
    char a[16], b[16];
    char *const program[] = {"given_away", a, b, NULL};
    pid_t pid;

    must(pipe(told) == 0 && socketpair(AF_UNIX, SOCK_STREAM, 0, un) == 0, "pipe");
    if ((way == PASSES || way == PASSES_AND_CLOSES) && fork() == 0) {
        close(told[1]);
        _exit(third(passed(un[1]), told[0]));
    }
    fd = accept(l, NULL, NULL);
    must(fd >= 0, "accept");
    close(l);
    if (fork() == 0) {
        close(told[0]);
        child(fd, told[1]);
    }
    close(told[1]);
    snprintf(a, sizeof(a), "%d", fd);
    snprintf(b, sizeof(b), "%d", told[0]);
    if (way == BECOMES)
        execv("/proc/self/exe", program);
    else if (way == STARTS || way == STARTS_AND_CLOSES)
        must(posix_spawn(&pid, "/proc/self/exe", NULL, NULL, program, environ) == 0, "posix_spawn");
    else
        pass_on(un[0], fd);
    if (way >= STARTS_AND_CLOSES)
        close(fd);
    _exit(0);
}

int main(int argc, char **argv)
{
    static const char *const ways[] = {"becomes", "starts", "passes", "starts, closes",
                                       "passes, closes"};

    if (argc == 3)
        return third(atoi(argv[1]), atoi(argv[2]));
    for (enum way way = BECOMES; way <= PASSES_AND_CLOSES; way++) {
        struct sockaddr_in at;
        int l = listener(&at);
        pid_t one, two;

        printf("-- %s\n", ways[way]);
        fflush(stdout);
        one = fork();
        if (one == 0)
            client(&at);
        two = fork();
        if (two == 0)
            owner(l, way);
        close(l);
        ended(one);
        ended(two);
    }
    return 0;
}
