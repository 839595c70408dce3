/*
 * passed_on.c - a server that accepts, and passes each connection on to another process of its own
 * (SCM_RIGHTS), as Node's cluster does: closed at once, it boards there; as long as the server or a
 * third process has it, too, it does not, and nobody gets another's bytes.
 */
#include "warm.h"

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <spawn.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/wait.h>

static struct sockaddr_in at;
static int server;

static void pass_on(int over, int fd)
{
    union {
        struct cmsghdr head;
        char room[CMSG_SPACE(sizeof(int))];
    } control = {0};
    char byte = 'x';
    struct iovec v = {&byte, 1};
    struct msghdr m = {
        .msg_iov = &v, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control};

    control.head.cmsg_level = SOL_SOCKET;
    control.head.cmsg_type = SCM_RIGHTS;
    control.head.cmsg_len = CMSG_LEN(sizeof(int));
    memcpy(CMSG_DATA(&control.head), &fd, sizeof fd);
    must(sendmsg(over, &m, 0) == 1, "sendmsg");
}

static int take(int over, int flags)
{
    union {
        struct cmsghdr head;
        char room[CMSG_SPACE(sizeof(int))];
    } control = {0};
    char byte;
    struct iovec v = {&byte, 1};
    struct msghdr m = {
        .msg_iov = &v, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control};
    int fd;

    must(recvmsg(over, &m, flags) == 1 && control.head.cmsg_type == SCM_RIGHTS, "recvmsg");
    memcpy(&fd, CMSG_DATA(&control.head), sizeof fd);
    return fd;
}

static void signal_to(int over)
{
    must(write(over, "", 1) == 1, "write");
}

static void wait_for(int over)
{
    char byte;

    must(read(over, &byte, 1) == 1, "read");
}

static void at_once(int over)
{
    warms("closed at once", take(over, MSG_CMSG_CLOEXEC));
}

static void kept(int over)
{
    int fd = take(over, 0);

    stays("kept", fd);
    signal_to(over);
    wait_for(over);
    warms("closed later", fd);
}

static void first_of_two(int over)
{
    stays("of two", take(over, 0));
}

static void second_of_two(int over)
{
    int fd = take(over, 0);

    wait_for(over);
    stays("the second of two", fd);
    echo(fd, 1);
}

static int told[2];

/* The same number twice, in one process. */
static void looked(int over)
{
    int one = take(over, MSG_PEEK), two;

    wait_for(told[0]);
    stays("looked", one);
    two = take(over, 0);
    stays("taken", two);
    echo(one, 1);
}

/* By way of somebody who keeps it, too, over a socket that the server has made. */
static int along[2];

static void between(int over)
{
    int fd = take(over, 0);

    wait_for(over);
    pass_on(along[0], fd);
    wait_for(along[0]);
    stays("between", fd);
    echo(fd, 1);
}

static void last(int over)
{
    int fd = take(along[1], 0);

    (void)over;
    stays("the last", fd);
    signal_to(along[1]);
}

static void alone(int over)
{
    int fd = take(over, 0);

    stays("with a program", fd);
    echo(fd, 1);
}

/* A program that is executed, and has what has no FD_CLOEXEC. */
static pid_t sleeps(void)
{
    char *argv[] = {"sleep", "200", NULL};
    pid_t pid;

    must(posix_spawnp(&pid, argv[0], NULL, NULL, argv, environ) == 0, "posix_spawnp");
    return pid;
}

/* One that may not ask sockets for anything, which a filter sees to, receives a descriptor. */
static void filtered(int over)
{
    struct sock_filter f[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_getsockopt, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {sizeof f / sizeof f[0], f};

    must(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
             prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0,
         "seccomp");
    echo(take(over, 0), 1);
}

static pid_t begin(void (*what)(int), int *over)
{
    int p[2];
    pid_t pid;

    must(socketpair(AF_UNIX, SOCK_STREAM, 0, p) == 0, "socketpair");
    fflush(stdout);
    pid = fork();
    must(pid >= 0, "fork");
    if (pid == 0) {
        close(p[0]);
        close(server);
        what(p[1]);
        fflush(stdout);
        _exit(0);
    }
    close(p[1]);
    *over = p[0];
    return pid;
}

static void client(int unused)
{
    int fd = socket(AF_INET, SOCK_STREAM, 0);

    (void)unused;
    must(connect(fd, (void *)&at, sizeof at) == 0, "connect");
    asks(fd, 0, 0);
    close(fd);
}

static int accepted(void)
{
    int fd = accept(server, NULL, NULL);

    must(fd >= 0, "accept");
    return fd;
}

static void over_now(const char *what)
{
    int status, good = 0;

    while (wait(&status) > 0)
        good += status == 0;
    printf("%s: %d have ended well\n", what, good);
}

/* It receives the next connection, which is the server's still. */
static int passes(void (*what)(int), int *over)
{
    int clients, fd;

    begin(what, over);
    begin(client, &clients);
    fd = accepted();
    pass_on(*over, fd);
    return fd;
}

static void closes_at_once(void (*what)(int), const char *name)
{
    int over;

    close(passes(what, &over));
    over_now(name);
}

int main(void)
{
    int over, second, fd, status;
    pid_t sleeper;

    alarm(250);
    server = listener(&at);

    closes_at_once(at_once, "closed at once");

    fd = passes(kept, &over);
    wait_for(over);
    close(fd);
    signal_to(over);
    over_now("kept");

    begin(second_of_two, &second);
    fd = passes(first_of_two, &over);
    pass_on(second, fd);
    close(fd);
    while (read(over, &fd, 1) > 0)
        ;
    signal_to(second);
    over_now("two");

    must(pipe(told) == 0, "pipe");
    close(passes(looked, &over));
    signal_to(told[1]);
    over_now("looked");

    must(socketpair(AF_UNIX, SOCK_STREAM, 0, along) == 0, "socketpair");
    begin(last, &second);
    close(passes(between, &over));
    signal_to(over);
    over_now("along");

    closes_at_once(filtered, "filtered");

    fd = passes(alone, &over);
    sleeper = sleeps();
    close(fd);
    for (int i = 0; i < 2; i++)
        must(wait(&status) != sleeper && status == 0, "wait");
    kill(sleeper, SIGKILL);
    over_now("with a program");
    return 0;
}
