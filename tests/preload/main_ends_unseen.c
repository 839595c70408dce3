/*
 * main_ends_unseen.c - as main_ends.c, in a directory where there is no /proc to count the threads
 * in: a daemon's empty one. The process ends with its last thread, whether connections were there
 * before or come after; and nobody has to kill it.
 */
#include "pair.h"

#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/wait.h>

static int p[2];

/* libc loads what it needs for an end of a thread while it can be found. */
static void *ends(void *unused)
{
    (void)unused;
    pthread_exit(NULL);
}

static void *other(void *main_thread)
{
    pthread_join(*(pthread_t *)main_thread, NULL);
    may_board = false;
    if (!p[0])
        tcp_pair(p);
    deliver(p[0], p[1], "one");
    deliver(p[1], p[0], "two");
    puts("the last thread ends");
    return NULL;
}

static void child(bool before, const char *dir)
{
    static pthread_t main_thread;
    pthread_t t;

    main_thread = pthread_self();
    must(pthread_create(&t, NULL, ends, NULL) == 0 && pthread_join(t, NULL) == 0, "thread");
    if (before) {
        tcp_pair(p);
        on_rail(p);
    }
    must(geteuid() == 0 || unshare(CLONE_NEWUSER) == 0, "unshare");
    must(chroot(dir) == 0 && chdir("/") == 0, "chroot");
    must(pthread_create(&t, NULL, other, &main_thread) == 0, "thread");
    pthread_exit(NULL);
}

int main(void)
{
    char dir[] = "/tmp/empty.XXXXXX";

    must(mkdtemp(dir) != NULL, "directory");
    setvbuf(stdout, NULL, _IOLBF, 0);
    for (int before = 0; before < 2; before++) {
        struct pollfd end = {.events = POLLIN};
        pid_t pid = fork();
        int status;

        if (pid == 0)
            child(before, dir);
        end.fd = (int)syscall(SYS_pidfd_open, pid, 0);
        must(end.fd >= 0, "pidfd_open");
        /* Its last thread may have every signal blocked, but for this one. */
        if (poll(&end, 1, 30000) == 0)
            kill(pid, SIGKILL);
        must(waitpid(pid, &status, 0) == pid, "waitpid");
        close(end.fd);
        printf("%s: status %#x\n", before ? "with a connection" : "connects after", status);
    }
    return rmdir(dir);
}
