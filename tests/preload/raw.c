/*
 * raw.c - system calls by number, and clone, around connections: they do what the kernel does, with
 * every argument, and the streams know of it.
 */
#include "say.h"

#include <fcntl.h>
#include <linux/sched.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/select.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>

/* All six arguments, the result and errno. */
static void exact(void)
{
    int fd = memfd_create("six", 0);
    char *p;

    puts("-- exact");
    must(ftruncate(fd, 8192) == 0 && pwrite(fd, "sixth", 5, 4096) == 5, "file");
    p = (char *)syscall(SYS_mmap, NULL, 4096, PROT_READ, MAP_PRIVATE, fd, 4096);
    printf("%s\n", p);
    SHOW(syscall(SYS_munmap, p, 4096));
    SHOW(syscall(SYS_mmap, NULL, 4096, PROT_READ, MAP_PRIVATE, -1, 0));
    SHOW(syscall(100000));
    SHOW(syscall(-1));
    SHOW(syscall(SYS_close, 999));
    SHOW(syscall(SYS_getpid) == getpid());
    SHOW(syscall(SYS_close, fd));
}

static void bytes(void)
{
    char buf[32] = "";
    struct iovec v = {buf, sizeof(buf)};
    struct pollfd pfd = {.events = POLLIN};
    struct msghdr m = {.msg_iov = &v, .msg_iovlen = 1};
    struct timespec second = {1, 0};
    fd_set set;
    int p[2];

    puts("-- bytes");
    tcp_pair(p);
    deliver(p[0], p[1], "for a raw read");
    SHOW(syscall(SYS_read, p[1], buf, sizeof(buf)));
    printf("[%s]\n", buf);
    SHOW(syscall(SYS_write, p[1], "raw write", 9));
    hear(p[0], "end");
    close(p[0]);
    close(p[1]);

    tcp_pair(p);
    pfd.fd = p[1];
    deliver(p[0], p[1], "for poll");
    SHOW(syscall(SYS_ppoll, &pfd, 1, &second, NULL, 0));
    SHOW(pfd.revents);
    hear(p[1], "end");
    deliver(p[1], p[0], "for recvmsg");
    SHOW(syscall(SYS_recvmsg, p[0], &m, 0));
    SHOW(syscall(SYS_sendto, p[0], "word", 4, MSG_NOSIGNAL, NULL, 0));
    hear(p[1], "end");
    close(p[0]);
    close(p[1]);

    tcp_pair(p);
    FD_ZERO(&set);
    FD_SET(p[1], &set);
    deliver(p[0], p[1], "for select");
    SHOW(syscall(SYS_pselect6, p[1] + 1, &set, NULL, NULL, &second, NULL));
    SHOW(FD_ISSET(p[1], &set) != 0);
    hear(p[1], "end");
    SHOW(syscall(SYS_shutdown, p[0], SHUT_WR));
    hear(p[1], "end of stream");
    close(p[0]);
    close(p[1]);
}

static void waits(void)
{
    struct epoll_event ev = {.events = EPOLLIN, .data.u64 = 5}, got = {0};
    int p[2], ep = epoll_create1(0);

    puts("-- epoll");
    tcp_pair(p);
    SHOW(syscall(SYS_epoll_ctl, ep, EPOLL_CTL_ADD, p[1], &ev));
    SHOW(epoll_wait(ep, &got, 1, 0));
    deliver(p[0], p[1], "word");
    SHOW(epoll_wait(ep, &got, 1, 30000));
    SHOW(got.data.u64);
    SHOW(syscall(SYS_epoll_pwait, ep, &got, 1, 30000, NULL, 8));
    SHOW(got.data.u64);
    hear(p[1], "end");
    close(p[0]);
    SHOW(epoll_wait(ep, &got, 1, 30000));
    hear(p[1], "end of stream");
    close(p[1]);
    close(ep);
}

static void numbers(void)
{
    int p[2], d;

    puts("-- numbers");
    tcp_pair(p);
    d = (int)syscall(SYS_dup, p[0]);
    SHOW(syscall(SYS_close, p[0]));
    SHOW(syscall(SYS_close, p[0]));
    deliver(d, p[1], "by the dup");
    hear(p[1], "end");
    SHOW(syscall(SYS_dup3, d, 70, O_CLOEXEC));
    SHOW(syscall(SYS_fcntl, d, F_DUPFD, 80));
    SHOW(syscall(SYS_close, d));
    deliver(p[1], 80, "to 80");
    hear(70, "70");
    SHOW(syscall(SYS_close_range, 60, 100, 0));
    hear(p[1], "end of stream");
    close(p[1]);
    /* The kernel closes everything, ours too if it could. */
    tcp_pair(p);
    SHOW(syscall(SYS_close_range, 500, ~0u, 0));
    deliver(p[0], p[1], "still there");
    hear(p[1], "end");
    close(p[0]);
    hear(p[1], "end of stream");
    close(p[1]);
}

static pid_t by_clone(void)
{
    return (pid_t)syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
}

static pid_t by_clone3(void)
{
    struct clone_args a = {.exit_signal = SIGCHLD};

    return (pid_t)syscall(SYS_clone3, &a, sizeof(a));
}

/* One descriptor table for both processes. */
static pid_t by_clone_files(void)
{
    return (pid_t)syscall(SYS_clone, CLONE_FILES | SIGCHLD, 0, 0, 0, 0);
}

#ifdef SYS_fork
static pid_t by_fork(void)
{
    return (pid_t)syscall(SYS_fork);
}
#endif

static void both_write(pid_t (*make)(void), const char *how)
{
    int p[2];

    shared_by(make, how);
    tcp_pair(p);
    deliver(p[0], p[1], "a new one");
    hear(p[1], "end");
    close(p[0]);
    close(p[1]);
}

static int given[2];

static int child(void *arg)
{
    must(write(given[0], arg, 5) == 5, "child's write");
    return 9;
}

static char stack[2][256 * 1024] __attribute__((aligned(64)));

static void by_function(int flags, const char *how)
{
    pid_t pid;

    printf("-- %s\n", how);
    fflush(stdout);
    tcp_pair(given);
    pid = clone(child, stack[0] + sizeof(stack[0]), flags | SIGCHLD, "hello");
    must(pid > 0, "clone");
    ended(pid);
    hear(given[1], "end");
    deliver(given[0], given[1], "from the parent");
    hear(given[1], "end");
    close(given[0]);
    hear(given[1], "end of stream");
    close(given[1]);
    SHOW(clone(NULL, NULL, 0, NULL));
}

int main(void)
{
    exact();
    bytes();
    both_write(by_clone, "SYS_clone");
    both_write(by_clone3, "SYS_clone3");
#ifdef SYS_fork
    both_write(by_fork, "SYS_fork");
#endif
    by_function(0, "clone");
    by_function(CLONE_VM | CLONE_VFORK, "clone as vfork");
    waits();
    may_board = false;
    both_write(by_clone_files, "SYS_clone with one table");
    by_function(CLONE_FILES, "clone with one table");
    numbers();
    return 0;
}
