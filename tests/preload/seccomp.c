/*
 * seccomp.c - a program that lets itself do no more than it needs, while connections are in use: it
 * survives with the library, whatever it then does with them.
 */
#include "crossed.h"

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <stddef.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>

enum { MOST = 24 };

/* All but these kill the process. */
static int only(const int *calls, bool by_syscall)
{
    struct sock_filter code[2 * MOST + 2] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr))};
    struct sock_fprog prog = {1, code};

    for (int i = 0; calls[i] >= 0; i++) {
        code[prog.len++] =
            (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (unsigned)calls[i], 0, 1);
        code[prog.len++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
    }
    code[prog.len++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS);
    if (by_syscall)
        return (int)syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &prog);
    return prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &prog);
}

static const int least[] = {SYS_read, SYS_write, SYS_exit_group, SYS_futex, -1};

static void talk(int p[2])
{
    char buf[64];

    for (int i = 0; i < 30; i++)
        for (int j = 0; j < 2; j++) {
            must(write(p[j], "0123456789abcdef", 16) == 16, "write");
            for (ssize_t n, got = 0; got < 16; got += n)
                must((n = read(p[!j], buf, (size_t)(16 - got))) > 0, "read");
        }
}

static void filtered(bool by_syscall)
{
    int p[2];

    tcp_pair(p);
    talk(p);
    deliver(p[0], p[1], "from before, 16.");
    must(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0, "no_new_privs");
    must(only(least, by_syscall) == 0, "filter");
    {
        char buf[32];

        must(read(p[1], buf, sizeof(buf)) == 16, "what came before");
    }
    talk(p);
    must(write(1, "survived\n", 9) == 9, "write");
}

static void by_prctl(void)
{
    filtered(false);
    exit(5);
}

static void by_syscall(void)
{
    filtered(true);
    _exit(6);
}

/* The strictest of all: not even exit_group. */
static void strict(void)
{
    int p[2];

    tcp_pair(p);
    must(prctl(PR_SET_SECCOMP, SECCOMP_MODE_STRICT, 0, 0, 0) == 0, "strict");
    talk(p);
    must(write(1, "survived\n", 9) == 9, "write");
    syscall(SYS_exit, 7);
}

/* What a server needs, with other descriptors and a wait for them. */
static void with_epoll(void)
{
    static const int calls[] = {
        SYS_read,        SYS_write,   SYS_exit_group, SYS_close,   SYS_futex,
#ifdef SYS_epoll_wait
        SYS_epoll_wait,
#endif
        SYS_epoll_pwait, SYS_accept4, SYS_accept,     SYS_connect, SYS_socket, SYS_dup, -1};
    struct epoll_event ev = {.events = EPOLLIN}, got = {0};
    struct sockaddr_in at;
    int p[2], q[2], l = listener(&at), ep = epoll_create1(0), other;
    char buf[64];

    tcp_pair(p);
    ev.data.u64 = 77;
    must(ep >= 0 && epoll_ctl(ep, EPOLL_CTL_ADD, p[1], &ev) == 0, "epoll");
    talk(p);
    must(epoll_wait(ep, &got, 1, 0) == 0, "quiet");
    must(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 && only(calls, false) == 0, "filter");
    must(write(p[0], "word", 4) == 4, "write");
    must(epoll_wait(ep, &got, 1, 5000) == 1 && got.data.u64 == 77 && got.events == EPOLLIN,
         "event");
    must(read(p[1], buf, sizeof(buf)) == 4, "read");
    q[0] = socket(AF_INET, SOCK_STREAM, 0);
    must(connect(q[0], (struct sockaddr *)&at, sizeof(at)) == 0, "connect");
    q[1] = accept(l, NULL, NULL);
    talk(q);
    other = dup(p[1]);
    close(p[1]);
    p[1] = other;
    talk(p);
    close(p[0]);
    must(read(p[1], buf, sizeof(buf)) == 0, "end");
    close(p[1]);
    close(ep);
    must(write(1, "survived\n", 9) == 9, "write");
    exit(8);
}

/* Questions, and filters that the kernel refuses: nothing changes. */
static void refused(void)
{
    int p[2];

    tcp_pair(p);
    SHOW(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, NULL, 0, 0));
    SHOW(syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, NULL));
    SHOW(syscall(SYS_seccomp, 99, 0, NULL));
    SHOW(prctl(PR_GET_SECCOMP));
    must(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0, "no_new_privs");
    SHOW(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, (void *)16, 0, 0));
    talk(p);
    close(p[0]);
    close(p[1]);
    may_board = false;
    tcp_pair(p);
    talk(p);
    exit(9);
}

/* Another thread sleeps in a call on a connection when the filter comes. */
static int given[2];

static void *sleeper(void *arg)
{
    char buf[16];

    must(recv(given[1], buf, 4, MSG_WAITALL) == 4, "sleeper's read");
    return arg;
}

static void with_thread(void)
{
    static const int calls[] = {
        SYS_read, SYS_write,  SYS_exit_group, SYS_futex,          SYS_recvfrom, SYS_madvise,
        SYS_exit, SYS_munmap, SYS_mprotect,   SYS_rt_sigprocmask, SYS_rseq,     SYS_set_robust_list,
        -1};
    pthread_t t;

    tcp_pair(given);
    talk(given);
    must(pthread_create(&t, NULL, sleeper, NULL) == 0, "thread");
    must(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 && only(calls, false) == 0, "filter");
    must(write(given[0], "word", 4) == 4, "write");
    pthread_join(t, NULL);
    must(write(1, "survived\n", 9) == 9, "write");
    _exit(10);
}

/* The filter comes while bytes are unread, and the stream has changed track among them. */
static void unread(void)
{
    static const int calls[] = {SYS_read, SYS_write, SYS_exit_group, SYS_futex, SYS_close, -1};
    char buf[ALL + 7];
    size_t got = 0;
    ssize_t n;
    int p[2];
    bool crossed = unread_pair(p);

    must(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 && only(calls, false) == 0, "filter");
    must(write(p[1], "the end", 7) == 7, "write");
    while (got < sizeof(buf) && (n = read(p[0], buf + got, sizeof(buf) - got)) > 0)
        got += (size_t)n;
    must(got == sizeof(buf) && memcmp(buf + ALL, "the end", 7) == 0, "what was sent");
    must(as_sent(buf), "bytes");
    talk(p);
    must(close(p[0]) == 0 && read(p[1], buf, 1) == 0, "end");
    exit(crossed ? 5 : 6);
}

static void at_a_switch(void)
{
    int status, lost = 0, crossed = 0;

    /* On a busy machine none of a few may be at a switch. */
    for (int i = 0; i < 10 || (mode_rail() && !lost && !crossed && i < 200); i++) {
        pid_t pid = fork();

        if (pid == 0)
            unread();
        must(waitpid(pid, &status, 0) == pid, "waitpid");
        lost += !WIFEXITED(status) || (WEXITSTATUS(status) != 5 && WEXITSTATUS(status) != 6);
        crossed += WIFEXITED(status) && WEXITSTATUS(status) == 5;
    }
    printf("%d did not survive\n", lost);
    if (mode_rail() && !lost && !crossed)
        puts("no switch behind unread bytes");
    exit(11);
}

int main(void)
{
    void (*const cases[])(void) = {by_prctl, by_syscall,  strict,     with_epoll,
                                   refused,  with_thread, at_a_switch};

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        int status;
        pid_t pid;

        printf("-- %zu\n", i);
        fflush(stdout);
        pid = fork();
        if (pid == 0)
            cases[i]();
        waitpid(pid, &status, 0);
        printf("child: exited %d status %d signal %d\n", WIFEXITED(status), WEXITSTATUS(status),
               WIFSIGNALED(status) ? WTERMSIG(status) : 0);
    }
    return 0;
}
