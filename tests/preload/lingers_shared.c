/*
 * lingers_shared.c - SO_LINGER of a connection that a child has, too: it is the child's as well
 * when the parent has closed its copy, also where the library goes on with that for a while.
 */
#include "pair.h"

#include <dirent.h>
#include <sys/wait.h>

/* Whether this process has a number for that socket. */
static bool has_socket(const char *name)
{
    char path[64], target[64];
    DIR *fds = opendir("/proc/self/fd");
    struct dirent *d;
    bool yes = false;

    must(fds != NULL, "/proc/self/fd");
    while ((d = readdir(fds))) {
        ssize_t n;

        snprintf(path, sizeof(path), "/proc/self/fd/%.20s", d->d_name);
        n = readlink(path, target, sizeof(target) - 1);
        if (n > 0) {
            target[n] = 0;
            yes |= strcmp(target, name) == 0;
        }
    }
    closedir(fds);
    return yes;
}

static void child(int fd, int go)
{
    struct linger l = {0, 0};
    socklen_t len = sizeof(l);
    char byte;

    alarm(60); /* it has the other end of go as well */
    must(read(go, &byte, 1) == 1, "go");
    must(getsockopt(fd, SOL_SOCKET, SO_LINGER, &l, &len) == 0, "SO_LINGER");
    printf("it lingers: %d %d\n", l.l_onoff, l.l_linger);
    fflush(stdout);
    _exit(0);
}

int main(void)
{
    struct linger l = {1, 3};
    char path[64], name[64];
    time_t begin;
    int p[2], go[2];
    ssize_t n;
    pid_t pid;

    tcp_pair(p);
    must(setsockopt(p[0], SOL_SOCKET, SO_LINGER, &l, sizeof(l)) == 0 && pipe(go) == 0, "SO_LINGER");
    snprintf(path, sizeof(path), "/proc/self/fd/%d", p[0]);
    n = readlink(path, name, sizeof(name) - 1);
    must(n > 0, "readlink");
    name[n] = 0;
    pid = fork();
    if (pid == 0)
        child(p[0], go[0]);
    close(p[0]);
    for (begin = time(NULL); has_socket(name) && others_run(begin);)
        ;
    must(write(go[1], "", 1) == 1 && waitpid(pid, NULL, 0) == pid, "child");
    close(p[1]);
    return 0;
}
