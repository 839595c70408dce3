/*
 * numbers.c - which numbers the library takes for TCP connections, by the file that it shows of
 * this process. A number that socket() gave for TCP is not asked for its protocol at connect(); so
 * it must not be taken for TCP once it is something else, whatever way it became that.
 * short_test.sh runs it with the library.
 */
#include "ipoib_fallback/pub.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { NOT_TCP = 48, NUMBER = 40 };

static struct sockaddr_in tcp = {.sin_family = AF_INET}, udp = {.sin_family = AF_INET};
static int receiver;
static struct fb_pub shown[64];

static void must(int ok, const char *what)
{
    if (!ok) {
        perror(what);
        exit(1);
    }
}

/* Connections that are shown; they come first in shown[]. */
static int tracked(void)
{
    static struct fb_pub slot[64];
    char path[64];
    int fd, n = 0;
    ssize_t got;

    snprintf(path, sizeof(path), FB_PUB_DIR "/%d", geteuid(), getpid());
    fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return 0; /* nothing was ever tracked */
    got = pread(fd, slot, sizeof(slot), sizeof(struct fb_pub_file));
    must(got >= 0, path);
    close(fd);
    for (size_t i = 0; i < (size_t)got / sizeof(slot[0]); i++)
        if (slot[i].gen & 1)
            shown[n++] = slot[i];
    return n;
}

static void say(const char *what, int want)
{
    int n = tracked();

    if (n == want)
        printf("ok short.%s\n", what);
    else
        printf("not ok short.%s: %d connections are tracked, not %d\n", what, n, want);
}

static int on_number(int fd)
{
    must(dup2(fd, NUMBER) == NUMBER, "dup2");
    close(fd);
    return NUMBER;
}

/* The lowest free number is the one that socket() gives. */
static int made(int type)
{
    int fd = socket(AF_INET, type, 0);

    must(fd >= 0, "socket");
    return fd;
}

static void connect_it(int fd, const struct sockaddr_in *to)
{
    must(connect(fd, (const struct sockaddr *)to, sizeof(*to)) == 0, "connect");
}

/* Past libc, as no wrapper can see it. */
static long unseen(long nr, long a, long b, long c)
{
#if defined(__aarch64__)
    register long x8 __asm__("x8") = nr, x0 __asm__("x0") = a;
    register long x1 __asm__("x1") = b, x2 __asm__("x2") = c;

    __asm__ volatile("svc #0" : "+r"(x0) : "r"(x8), "r"(x1), "r"(x2) : "memory");
    return x0;
#else
    long ret;

    __asm__ volatile("syscall"
                     : "=a"(ret)
                     : "0"(nr), "D"(a), "S"(b), "d"(c)
                     : "rcx", "r11", "memory");
    return ret;
#endif
}

/* A number that was made for TCP, then closed by `how`, is then a datagram socket's, which may have
 * come over another socket. */
static void closed_by(const char *what, void (*how)(int fd))
{
    int fd = made(SOCK_STREAM), again;

    how(fd);
    again = (int)unseen(SYS_socket, AF_INET, SOCK_DGRAM, 0);
    must(again == fd, "another number");
    connect_it(again, &udp);
    say(what, 0);
    close(again);
}

static void by_close(int fd)
{
    close(fd);
}

static void by_fclose(int fd)
{
    fclose(fdopen(fd, "r"));
}

static void by_syscall(int fd)
{
    syscall(SYS_close, fd);
}

static void by_range(int fd)
{
    close_range((unsigned)fd, (unsigned)fd, 0);
}

static void by_closefrom(int fd)
{
    closefrom(fd);
}

static void replaced_by(const char *what, int raw)
{
    int fd = made(SOCK_STREAM), other = made(SOCK_DGRAM);

    must((raw ? syscall(SYS_dup3, other, fd, 0) : dup2(other, fd)) == fd, "dup");
    close(other);
    connect_it(fd, &udp);
    say(what, 0);
    close(fd);
}

/* Nothing tells that the number is another socket's: it is found out before there
 * could be a rail. */
static void behind_our_back(void)
{
    int fd = made(SOCK_STREAM), wrong = 0;
    char text[64], back[64];
    time_t until = time(NULL) + 30;

    must(unseen(SYS_close, fd, 0, 0) == 0 && unseen(SYS_socket, AF_INET, SOCK_DGRAM, 0) == fd,
         "another number");
    connect_it(fd, &udp);
    for (int i = 0; i < 20; i++) {
        memset(text, 'a' + i, sizeof(text));
        must(send(fd, text, sizeof(text), 0) == sizeof(text), "send");
        must(recv(receiver, back, sizeof(back), 0) == sizeof(back), "recv");
        wrong += memcmp(text, back, sizeof(text)) != 0;
    }
    while (tracked() == 1 && shown[0].reason != NOT_TCP && time(NULL) < until)
        sched_yield();
    if (tracked() == 1 && shown[0].reason == NOT_TCP && !wrong)
        printf("ok short.unseen\n");
    else
        printf("not ok short.unseen: %d tracked, reason %u, %d wrong\n", tracked(), shown[0].reason,
               wrong);
    close(fd);
}

/* A vfork child has these numbers, and its parent's memory. */
static void in_vfork(void)
{
    int fd = made(SOCK_STREAM), status;
    pid_t pid;

    connect_it(fd, &tcp);
    pid = vfork();
    // NOLINTBEGIN(clang-analyzer-unix.Vfork)
    if (pid == 0) {
        int mine = socket(AF_INET, SOCK_STREAM, 0);
        int done = connect(mine, (const struct sockaddr *)&tcp, sizeof(tcp));

        close(mine);
        close(fd);
        _exit(done);
    }
    // NOLINTEND(clang-analyzer-unix.Vfork)
    must(waitpid(pid, &status, 0) == pid && status == 0, "vfork");
    say("vfork.child", 1);
    close(fd);
    say("vfork.after", 0);
}

/* And so has any other child with its memory, where it has a stack and thread-local
 * variables of its own. */
static int near;

static int cloned(void *unused)
{
    (void)unused;
    close(near);
    return 0;
}

static void in_clone(void)
{
    static char stack[65536] __attribute__((aligned(16)));
    int status;
    pid_t pid;

    near = made(SOCK_STREAM);
    connect_it(near, &tcp);
    pid = clone(cloned, stack + sizeof(stack), CLONE_VM | SIGCHLD, NULL);
    must(pid > 0 && waitpid(pid, &status, 0) == pid && status == 0, "clone");
    say("clone.child", 1);
    close(near);
    say("clone.after", 0);
}

static void in_fork(void)
{
    int fd = made(SOCK_STREAM), status;
    pid_t pid;

    connect_it(fd, &tcp);
    pid = fork();
    if (pid == 0) {
        int mine;

        close(fd);
        mine = made(SOCK_STREAM);
        connect_it(mine, &tcp);
        fflush(stdout);
        _exit(tracked() == 1 ? 0 : 1);
    }
    must(waitpid(pid, &status, 0) == pid, "fork");
    if (status)
        puts("not ok short.fork.child: does not track its own connection");
    else
        puts("ok short.fork.child");
    say("fork.parent", 1);
    close(fd);
}

static int bound(int type, struct sockaddr_in *at)
{
    socklen_t len = sizeof(*at);
    int fd = on_number(socket(AF_INET, type, 0));
    /* Out of the way of the lowest numbers. */
    int kept = fcntl(fd, F_DUPFD, NUMBER + 1);

    at->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    must(bind(kept, (struct sockaddr *)at, len) == 0 &&
             getsockname(kept, (struct sockaddr *)at, &len) == 0,
         "bind");
    close(fd);
    return kept;
}

int main(void)
{
    int listener = bound(SOCK_STREAM, &tcp), fd;

    setvbuf(stdout, NULL, _IOLBF, 0);
    must(listen(listener, 64) == 0, "listen");
    receiver = bound(SOCK_DGRAM, &udp);
    fd = made(SOCK_STREAM);
    connect_it(fd, &tcp);
    say("tcp", 1);
    close(fd);
    say("closed", 0);
    fd = made(SOCK_STREAM | SOCK_NONBLOCK);
    (void)connect(fd, (const struct sockaddr *)&tcp, sizeof(tcp));
    say("nonblocking", 1);
    close(fd);
    fd = made(SOCK_DGRAM);
    connect_it(fd, &udp);
    say("datagrams", 0);
    close(fd);
    closed_by("close", by_close);
    closed_by("fclose", by_fclose);
    closed_by("close_by_number", by_syscall);
    closed_by("close_range", by_range);
    replaced_by("dup2", 0);
    replaced_by("dup3_by_number", 1);
    in_fork();
    in_vfork();
    in_clone();
    behind_our_back();
    /* It closes everything above as well. */
    close(receiver);
    receiver = made(SOCK_DGRAM);
    must(bind(receiver, (struct sockaddr *)&udp, sizeof(udp)) == 0, "bind");
    closed_by("closefrom", by_closefrom);
    return 0;
}
