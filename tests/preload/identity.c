/*
 * identity.c - a process that changes its user, its groups, its capabilities or its root directory
 * while connections are in use, and then makes new ones.
 */
#include "say.h"

#include <grp.h>
#include <linux/capability.h>
#include <pthread.h>
#include <sys/syscall.h>
#include <sys/wait.h>

enum { NOBODY = 65534 };

static void to_user(void)
{
    const gid_t group = NOBODY;
    uid_t r, e, s;

    SHOW(setgroups(1, &group));
    SHOW(setgid(NOBODY));
    SHOW(setuid(NOBODY));
    SHOW(setuid(0));
    SHOW(setegid(0));
    SHOW(setregid((gid_t)-1, (gid_t)-1));
    SHOW(setresgid((gid_t)-1, (gid_t)-1, (gid_t)-1));
    SHOW(initgroups("nobody", NOBODY));
    getresuid(&r, &e, &s);
    printf("%u %u %u\n", r, e, s);
}

static void and_back(void)
{
    SHOW(seteuid(NOBODY));
    SHOW(geteuid());
    SHOW(seteuid(0));
    SHOW(setreuid((uid_t)-1, NOBODY));
    SHOW(setresuid((uid_t)-1, 0, (uid_t)-1));
    SHOW(geteuid());
}

int capset(cap_user_header_t, cap_user_data_t);

static void capabilities(void)
{
    struct __user_cap_header_struct head = {_LINUX_CAPABILITY_VERSION_3, 0};
    struct __user_cap_data_struct data[_LINUX_CAPABILITY_U32S_3] = {0};

    SHOW(capset(&head, data));
    data[0].effective = data[0].permitted = 1;
    SHOW(capset(&head, data));
    SHOW(syscall(SYS_capset, &head, data));
}

static void directory(void)
{
    SHOW(chroot("/proc/self"));
    SHOW(chroot("/nowhere"));
    SHOW(chdir("/"));
}

/* All threads have the new user, and there are no more of them than there should be. */
static pthread_barrier_t both;

static void *other_user(void *arg)
{
    pthread_barrier_wait(&both);
    pthread_barrier_wait(&both);
    *(uid_t *)arg = (uid_t)syscall(SYS_geteuid);
    return NULL;
}

static void threads(void)
{
    uid_t seen = 1;
    pthread_t t;

    pthread_barrier_init(&both, NULL, 2);
    must(pthread_create(&t, NULL, other_user, &seen) == 0, "thread");
    pthread_barrier_wait(&both);
    SHOW(setuid(NOBODY));
    pthread_barrier_wait(&both);
    pthread_join(t, NULL);
    printf("the other thread is %s\n", seen == geteuid() ? "the same user" : "somebody else");
}

static void in_child(const char *name, void (*change)(void))
{
    int status;
    pid_t pid;

    printf("-- %s\n", name);
    fflush(stdout);
    pid = fork();
    if (pid == 0) {
        int p[2], q[2];
        char c;

        tcp_pair(p);
        talk(p, "before          ");
        deliver(p[0], p[1], "x");
        change();
        may_board = change != directory;
        must(read(p[1], &c, 1) == 1 && c == 'x', "what came before");
        talk(p, "the old one     ");
        tcp_pair(q);
        talk(q, "a new one       ");
        close(p[0]);
        printf("end: %zd\n", read(p[1], &c, 1));
        exit(0);
    }
    waitpid(pid, &status, 0);
    printf("child: exited %d status %d\n", WIFEXITED(status), WEXITSTATUS(status));
}

int main(void)
{
    in_child("to a user", to_user);
    in_child("and back", and_back);
    in_child("capabilities", capabilities);
    in_child("threads", threads);
    in_child("root directory", directory);
    return 0;
}
