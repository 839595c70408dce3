/*
 * heirs_restricted.c - a child restricts itself before it first uses a connection that its
 * parent has on a rail: by a filter for system calls, by a limit of descriptors. It talks on
 * it all the same.
 */
#include "say.h"

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/resource.h>

static void filtered(int highest)
{
    struct sock_filter all = BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
    struct sock_fprog program = {1, &all};

    (void)highest;
    must(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
             prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0,
         "seccomp");
}

static void limited(rlim_t n)
{
    const struct rlimit few = {n, n};

    must(setrlimit(RLIMIT_NOFILE, &few) == 0, "setrlimit");
}

static void no_more(int highest)
{
    (void)highest;
    limited(0);
}

static void just_so_many(int highest)
{
    limited((rlim_t)highest + 1);
}

static void all_taken(int highest)
{
    limited((rlim_t)highest + 30);
    while (open("/dev/null", O_RDONLY) >= 0)
        ;
}

static void one(void (*restrict_itself)(int), bool cloexec, const char *how)
{
    int p[2], highest;
    pid_t pid;

    printf("-- %s\n", how);
    fflush(stdout);
    tcp_pair(p);
    highest = p[0] > p[1] ? p[0] : p[1];
    for (int i = 0; i < 2; i++)
        must(fcntl(p[i], F_SETFD, cloexec ? FD_CLOEXEC : 0) == 0, "F_SETFD");
    on_rail(p);
    fflush(stdout);
    pid = fork();
    if (pid == 0) {
        alarm(30);
        restrict_itself(highest);
        must(write(p[0], "from the child", 14) == 14, "write");
        hear(p[0], "child");
        fflush(stdout);
        _exit(7);
    }
    hear(p[1], "the other end");
    SHOW(send(p[1], "for the child", 13, MSG_NOSIGNAL));
    ended(pid);
    close(p[0]);
    close(p[1]);
}

int main(void)
{
    one(filtered, false, "a filter");
    one(filtered, true, "a filter, and the connection would end at exec");
    one(no_more, true, "no more descriptors");
    one(just_so_many, true, "as many as it has");
    one(all_taken, false, "all are taken");
    return 0;
}
