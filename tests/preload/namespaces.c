/*
 * namespaces.c - calls that the kernel refuses to a process of several threads, made while
 * connections are in use: they work as if the process had no thread but its own.
 */
#include "say.h"

#include <fcntl.h>
#include <sched.h>
#include <sys/wait.h>

/* Still one stream, in both directions, and as good as new afterwards. */
/* In a child, because there is no way back. unread: bytes of before are read after the call. */
static void in_child(const char *name, int (*call)(void))
{
    int p[2], status;
    pid_t pid;

    printf("-- %s\n", name);
    fflush(stdout);
    pid = fork();
    if (pid == 0) {
        char buf[16];

        tcp_pair(p);
        talk(p, "before the call ");
        deliver(p[0], p[1], "from before");
        SHOW(call());
        must(read(p[1], buf, sizeof(buf)) == 11 && memcmp(buf, "from before", 11) == 0, "read");
        talk(p, "after the call  ");
        close(p[0]);
        printf("end: %zd\n", read(p[1], buf, sizeof(buf)));
        exit(0);
    }
    waitpid(pid, &status, 0);
    printf("child: exited %d status %d\n", WIFEXITED(status), WEXITSTATUS(status));
}

static int new_user(void)
{
    return unshare(CLONE_NEWUSER);
}

static int new_pid(void)
{
    return unshare(CLONE_NEWUSER | CLONE_NEWPID);
}

static int new_net(void)
{
    return unshare(CLONE_NEWUSER | CLONE_NEWNET);
}

static int new_files(void)
{
    return unshare(CLONE_FILES | CLONE_FS);
}

static int refused(void)
{
    return unshare(0x7);
}

static int twice(void)
{
    return unshare(CLONE_NEWUSER) ?: unshare(CLONE_NEWUSER) ?: unshare(CLONE_NEWNS);
}

/* Into the user namespace of a child of ours. */
static int join_user(void)
{
    int ready[2], go[2], fd, r, err;
    char path[64], c;
    pid_t pid;

    must(pipe(ready) == 0 && pipe(go) == 0, "pipe");
    pid = fork();
    if (pid == 0) {
        must(unshare(CLONE_NEWUSER) == 0 && write(ready[1], "x", 1) == 1, "child's unshare");
        close(go[1]);
        must(read(go[0], &c, 1) == 0, "go");
        _exit(0);
    }
    must(read(ready[0], &c, 1) == 1, "ready");
    snprintf(path, sizeof(path), "/proc/%d/ns/user", pid);
    fd = open(path, O_RDONLY);
    r = setns(fd, CLONE_NEWUSER);
    err = errno;
    close(fd);
    close(go[0]);
    close(go[1]);
    close(ready[0]);
    close(ready[1]);
    waitpid(pid, NULL, 0);
    errno = r ? err : CLEAN;
    return r;
}

int main(void)
{
    in_child("unshare user", new_user);
    in_child("unshare user and pid", new_pid);
    in_child("unshare user and net", new_net);
    in_child("unshare files", new_files);
    in_child("an argument that unshare refuses", refused);
    in_child("three times", twice);
    in_child("setns", join_user);
    return 0;
}
