/* who.c - rows: users, namespaces, limits, filters; signal handlers. */
#define _GNU_SOURCE
#include "rows.h"

#include <grp.h>
#include <linux/capability.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>

int capset(cap_user_header_t head, cap_user_data_t data);
int pivot_root(const char *root, const char *old);

/* ---- the same user as before: what counts is the call ---- */

ROW(setuid, )
{
    SHOW(SYM(setuid)(getuid()));
}
ROW(seteuid, )
{
    SHOW(SYM(seteuid)(geteuid()));
}
ROW(setreuid, )
{
    SHOW(SYM(setreuid)(getuid(), geteuid()));
}
ROW(setresuid, )
{
    SHOW(SYM(setresuid)(getuid(), geteuid(), geteuid()));
}
ROW(setgid, )
{
    SHOW(SYM(setgid)(getgid()));
}
ROW(setegid, )
{
    SHOW(SYM(setegid)(getegid()));
}
ROW(setregid, )
{
    SHOW(SYM(setregid)(getgid(), getegid()));
}
ROW(setresgid, )
{
    SHOW(SYM(setresgid)(getgid(), getegid(), getegid()));
}

ROW(setgroups, )
{
    gid_t list[256];
    int n = getgroups(256, list);

    must(n >= 0, "getgroups");
    SHOW(SYM(setgroups)((size_t)n, list));
}

static void groups(void)
{
    SHOW(SYM(initgroups)("root", getgid()));
}
ROW(initgroups, )
{
    rows_apart(groups);
}

ROW(capset, )
{
    struct __user_cap_header_struct head = {_LINUX_CAPABILITY_VERSION_3, 0};
    struct __user_cap_data_struct data[2];

    must(syscall(SYS_capget, &head, data) == 0, "capget");
    SHOW(SYM(capset)(&head, data));
}

/* ---- where it is ---- */

static void root(void)
{
    SHOW(SYM(chroot)("/"));
}
ROW(chroot, )
{
    rows_apart(root);
}
ROW(pivot_root, )
{
    SHOW(SYM(pivot_root)("/nowhere", "/nowhere/old"));
}

static void namespace(void)
{
    int fd = open("/proc/self/ns/uts", O_RDONLY | O_CLOEXEC);

    SHOW(SYM(setns)(fd, CLONE_NEWUTS));
    close(fd);
}

ROW(setns, )
{
    rows_apart(namespace);
}

static void apart(void)
{
    SHOW(SYM(unshare)(CLONE_FS));
}
ROW(unshare, )
{
    rows_apart(apart);
}

/* ---- limits ---- */

#define LOWERED(name, type, get, set)                       \
    static void lower_##name(void)                          \
    {                                                       \
        struct type limit;                                  \
                                                            \
        must(get(RLIMIT_NOFILE, &limit) == 0, "getrlimit"); \
        limit.rlim_cur = 400;                               \
        SHOW(set);                                          \
        SHOW(write(c, "few", 3));                           \
        rows_hear(s, 3);                                    \
    }                                                       \
    ROW(name, )                                             \
    {                                                       \
        rows_apart(lower_##name);                           \
    }

LOWERED(setrlimit, rlimit, getrlimit, SYM(setrlimit)(RLIMIT_NOFILE, &limit))
LOWERED(setrlimit64, rlimit64, getrlimit64, SYM(setrlimit64)(RLIMIT_NOFILE, &limit))
LOWERED(prlimit, rlimit, getrlimit, SYM(prlimit)(0, RLIMIT_NOFILE, &limit, NULL))
LOWERED(prlimit64, rlimit64, getrlimit64, SYM(prlimit64)(0, RLIMIT_NOFILE, &limit, NULL))

/* ---- a filter that allows everything ---- */

static void filter(void)
{
    struct sock_filter all = BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
    struct sock_fprog program = {1, &all};

    SHOW(SYM(prctl)(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0));
    SHOW(SYM(prctl)(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program, 0, 0));
    SHOW(write(c, "filtered", 8));
    rows_hear(s, 8);
}

ROW(prctl, )
{
    rows_apart(filter);
}

/* ---- handlers: set by the symbol, they interrupt a receive on the rail ---- */

int __sigaction(int sig, const struct sigaction *act, struct sigaction *old);
sighandler_t bsd_signal(int sig, sighandler_t handler);
sighandler_t __sysv_signal(int sig, sighandler_t handler);

static volatile int handled;

static void handler(int sig)
{
    (void)sig;
    handled++;
}

static void interrupt(void)
{
    char byte;

    deliver(c, s, "x");
    handled = 0;
    raise(SIGUSR2);
    printf("  handled %d\n", handled);
    SHOW(read(s, &byte, 1));
    signal(SIGUSR2, SIG_DFL);
}

ROW(sigaction, )
{
    struct sigaction act = {.sa_handler = handler}, old;

    SHOW(SYM(sigaction)(SIGUSR2, &act, NULL));
    SHOW(SYM(sigaction)(SIGUSR2, NULL, &old));
    printf("  %d %#x\n", old.sa_handler == handler, (unsigned)old.sa_flags & ~0x04000000u);
    interrupt();
}

ROW(__sigaction, )
{
    struct sigaction act = {.sa_handler = handler, .sa_flags = SA_RESTART};

    SHOW(SYM(__sigaction)(SIGUSR2, &act, NULL));
    interrupt();
}

#define HANDLED(name)                                             \
    ROW(name, )                                                   \
    {                                                             \
        printf("  %d\n", SYM(name)(SIGUSR2, handler) == SIG_DFL); \
        interrupt();                                              \
    }

HANDLED(signal)
HANDLED(bsd_signal)
HANDLED(ssignal)
HANDLED(sysv_signal)
HANDLED(__sysv_signal)
HANDLED(sigset)

ROW(sigignore, )
{
    SHOW(SYM(sigignore)(SIGUSR2));
    interrupt();
}

ROW(siginterrupt, )
{
    signal(SIGUSR2, handler);
    SHOW(SYM(siginterrupt)(SIGUSR2, 1));
    interrupt();
}
