/*
 * leftovers.c - what a child has beyond what its parent's program gave it: nothing, however it was
 * made. The library's descriptors are at 512 and up, where this program has none.
 */
#include "pair.h"

#include <dirent.h>
#include <fcntl.h>
#include <linux/kcmp.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <sys/syscall.h>
#include <sys/wait.h>

extern char **environ;

enum { MOST = 4096 };

static const char look[] = "for f in /proc/self/fd/*; do n=${f##*/}; "
                           "[ \"$n\" -lt 512 ] || echo \"$n\" is left; done; echo looked";

static int high(int pid, int *fds)
{
    char path[64];
    struct dirent *e;
    int n = 0;
    DIR *d;

    snprintf(path, sizeof(path), "/proc/%d/fd", pid);
    d = opendir(path);
    must(d != NULL, path);
    while ((e = readdir(d)))
        if (atoi(e->d_name) >= 512 && n < MOST)
            fds[n++] = atoi(e->d_name);
    closedir(d);
    return n;
}

/* How many of the parent's files at 512 and up the child has as well. */
static int in_common(int pid)
{
    static int mine[MOST], its[MOST];
    int n = high(getpid(), mine), m = high(pid, its), same = 0;

    for (int i = 0; i < n; i++)
        for (int j = 0; j < m; j++)
            if (syscall(SYS_kcmp, getpid(), pid, KCMP_FILE, mine[i], its[j]) == 0)
                same++;
    return same;
}

static int p[2], hold[2], begun[2];

static int stay(void *unused)
{
    char c;

    (void)unused;
    close(hold[1]);
    must(write(begun[1], "x", 1) == 1 && read(hold[0], &c, 1) == 0, "stay");
    _exit(0);
}

static void talk(void)
{
    char buf[16];

    for (int i = 0; i < 20; i++)
        for (int j = 0; j < 2; j++)
            must(write(p[j], "0123456789abcdef", 16) == 16 &&
                     recv(p[!j], buf, 16, MSG_WAITALL) == 16,
                 "talk");
}

static int by_fork(void)
{
    int pid = fork();

    if (pid == 0)
        stay(NULL);
    return pid;
}

static int by_raw_clone(void)
{
    int pid = (int)syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);

    if (pid == 0)
        stay(NULL);
    return pid;
}

static int by_clone(void)
{
    static char stack[256 * 1024] __attribute__((aligned(64)));

    return clone(stay, stack + sizeof(stack), SIGCHLD, NULL);
}

/* The child is asked at its first moment, before it has done anything. */
static void copies(int (*make)(void), const char *how)
{
    int status, same;
    pid_t pid;
    char c;

    printf("-- %s\n", how);
    fflush(stdout);
    /* Who stands still in the middle of opening one is not waited for for ever by who forks:
     * then once more. */
    for (int i = 0; i == 0 || (same && i < 2); i++) {
        must(pipe(hold) == 0 && pipe(begun) == 0, "pipe");
        pid = make();
        must(pid > 0, how);
        must(read(begun[0], &c, 1) == 1, "begun");
        same = in_common(pid);
        close(begun[0]);
        close(begun[1]);
        close(hold[0]);
        close(hold[1]);
        must(waitpid(pid, &status, 0) == pid, "waitpid");
    }
    printf("%d in common\n", same);
    talk();
}

static void programs(void)
{
    char *argv[] = {"sh", "-c", (char *)look, NULL};
    int status;
    pid_t pid;
    FILE *f;
    char line[256];

    puts("-- vfork");
    fflush(stdout);
    pid = vfork();
    if (pid == 0) {
        execv("/bin/sh", argv);
        _exit(127);
    }
    waitpid(pid, &status, 0);
    talk();
    puts("-- posix_spawn");
    fflush(stdout);
    must(posix_spawn(&pid, "/bin/sh", NULL, NULL, argv, environ) == 0, "posix_spawn");
    waitpid(pid, &status, 0);
    talk();
    puts("-- system");
    fflush(stdout);
    must(system(look) == 0, "system");
    talk();
    puts("-- popen");
    f = popen(look, "r");
    while (fgets(line, sizeof(line), f))
        fputs(line, stdout);
    pclose(f);
    talk();
}

/* The daemon has nothing of its parent's, and may use what it has inherited. */
static void becomes_daemon(void)
{
    static int mine[MOST];
    int out[2], status;
    char buf[64];
    ssize_t n;
    pid_t pid;

    puts("-- daemon");
    fflush(stdout);
    must(pipe(out) == 0, "pipe");
    pid = fork();
    if (pid == 0) {
        tcp_pair(p);
        talk();
        must(daemon(1, 1) == 0, "daemon");
        n = high(getpid(), mine); /* before the daemon has anything of its own */
        talk();
        dprintf(out[1], "%zd are left", n);
        _exit(0);
    }
    close(out[1]);
    must(waitpid(pid, &status, 0) == pid, "waitpid");
    n = read(out[0], buf, sizeof(buf));
    printf("%.*s\n", (int)n, buf);
    close(out[0]);
}

/* What the peer has not read yet is sent after close(), and no child holds the connection
 * open meanwhile. */
static void while_one_ends(int (*make)(void), const char *how)
{
    static char bytes[200000];
    size_t sent = 0, got = 0;
    ssize_t n;
    int q[2];

    tcp_pair(q);
    while (sent < sizeof(bytes) &&
           (n = send(q[0], bytes + sent, sizeof(bytes) - sent, MSG_DONTWAIT)) > 0)
        sent += (size_t)n;
    close(q[0]);
    copies(make, how);
    while ((n = read(q[1], bytes, sizeof(bytes))) > 0)
        got += (size_t)n;
    printf("the end, %s\n", n == 0 && got == sent ? "and all of it" : "too early");
    close(q[1]);
}

int main(void)
{
    becomes_daemon(); /* first: later forks have a link to this process, which they shall have */
    tcp_pair(p);
    talk();
    copies(by_fork, "fork");
    copies(by_raw_clone, "SYS_clone");
    copies(by_clone, "clone");
    while_one_ends(by_fork, "fork, while a connection ends");
    while_one_ends(by_raw_clone, "SYS_clone, while a connection ends");
    programs();
    return 0;
}
