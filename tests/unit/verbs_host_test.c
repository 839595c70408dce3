/*
 * verbs_host_test.c - which devices count, and how often, and by which names, the host and the
 * program are looked at before anything of RDMA is opened.
 */
#include "tests/shim/shim.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <unistd.h>

#include "config/log.h"
#include "config/reason.h"
#include "rsock/verbs_int.h"

/* ---- what verbs_host.c calls */

_Atomic int cfg_log_level;
void (*cfg_log_around)(bool begins);
static unsigned looked; /* at a descriptor of the program's */

void cfg_log_write(int level, const char *fmt, ...)
{
    (void)level, (void)fmt;
}

void rsk_own_enter(void)
{
}

int rsk_own_opened(int fd)
{
    return fd;
}

bool rsk_own_has(int fd)
{
    (void)fd;
    looked++;
    return false;
}

void rsk_own_close(int fd)
{
    sys_close(fd);
}

/* ---- */

/* Each stream to another host asks, and where RDMA is of no use none of them opens a channel. */
TEST_CASE(verbs_host, a_refusal_is_good_for_a_moment)
{
    unsigned first;

    EXPECT(vb_host_refuses() != RSN_OWN_RDMA);
    first = looked;
    EXPECT(first > 0);
    vb_host_refused(RSN_NO_VERBS);
    looked = 0;
    for (int i = 0; i < 2000; i++)
        EXPECT_EQ_INT(vb_host_refuses(), RSN_NO_VERBS);
    EXPECT_EQ_INT(looked, 0);
    usleep(1100000);
    (void)vb_host_refuses();
    EXPECT(looked > 0);
    /* Another user may be let in. */
    if (geteuid() != 0)
        return;
    vb_host_refused(RSN_NO_VERBS);
    looked = 0;
    ASSERT_EQ_INT(seteuid(1), 0);
    (void)vb_host_refuses();
    ASSERT_EQ_INT(seteuid(0), 0);
    EXPECT(looked > 0);
}

TEST_CASE(verbs_host, no_number_for_a_look_is_no_answer)
{
    struct rlimit was, none;

    vb_host_refused(0);
    ASSERT_EQ_INT(getrlimit(RLIMIT_NOFILE, &was), 0);
    none = was;
    none.rlim_cur = 0;
    ASSERT_EQ_INT(setrlimit(RLIMIT_NOFILE, &none), 0);
    EXPECT_EQ_INT(vb_host_refuses(), RSN_LIMIT_FD);
    if (access("/sys/class/infiniband", R_OK) == 0)
        EXPECT_EQ_INT(vb_host_has_device(), RSN_LIMIT_FD);
    ASSERT_EQ_INT(setrlimit(RLIMIT_NOFILE, &was), 0);
    vb_host_refused(0);
}

/* ---- what devices there are */

static bool device(const char *name, const char *type)
{
    char path[80];
    FILE *f;

    snprintf(path, sizeof path, "/sys/class/infiniband/%s", name);
    if (mkdir(path, 0700) < 0)
        return false;
    snprintf(path, sizeof path, "/sys/class/infiniband/%s/node_type", name);
    f = type ? fopen(path, "w") : NULL;
    if (f) {
        fprintf(f, "%s\n", type);
        fclose(f);
    }
    return f || !type;
}

static void see_devices(void)
{
    if (unshare(CLONE_NEWNS) < 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0 ||
        mount("none", "/sys/class", "tmpfs", 0, NULL) < 0)
        _exit(77);
    EXPECT_EQ_INT(vb_host_has_device(), RSN_NO_RDMA_ON_ROUTE);
    EXPECT_EQ_INT(vb_host_may_listen(), 0);
    ASSERT(mkdir("/sys/class/infiniband", 0700) == 0 && device("siw0", "4: RNIC"));
    EXPECT_EQ_INT(vb_host_has_device(), RSN_NO_RDMA_ON_ROUTE);
    EXPECT_EQ_INT(vb_host_may_listen(), -ENODEV);
    ASSERT(device("irdma1", "4: RNIC"));
    EXPECT_EQ_INT(vb_host_has_device(), RSN_NO_RDMA_ON_ROUTE);
    ASSERT(device("rxe0", "1: CA"));
    EXPECT_EQ_INT(vb_host_has_device(), 0);
    EXPECT_EQ_INT(vb_host_may_listen(), -ENODEV);
    ASSERT(unlink("/sys/class/infiniband/siw0/node_type") == 0 &&
           unlink("/sys/class/infiniband/irdma1/node_type") == 0 &&
           rmdir("/sys/class/infiniband/siw0") == 0 && rmdir("/sys/class/infiniband/irdma1") == 0);
    EXPECT_EQ_INT(vb_host_has_device(), 0);
    EXPECT_EQ_INT(vb_host_may_listen(), 0);
    /* One that says nothing may be of use. */
    ASSERT(unlink("/sys/class/infiniband/rxe0/node_type") == 0);
    EXPECT_EQ_INT(vb_host_has_device(), 0);
    EXPECT_EQ_INT(vb_host_may_listen(), 0);
    _exit(0);
}

TEST_CASE(verbs_host, iwarp_is_no_device_and_lets_nobody_listen)
{
    int status = 0;
    pid_t pid = fork();

    if (pid == 0)
        see_devices();
    ASSERT(pid > 0 && waitpid(pid, &status, 0) == pid);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 77)
        SKIP("no mounts");
    EXPECT_EQ_INT(status, 0);
}

static void *after_it(void *arg)
{
    (void)arg;
    while (access("/proc/self/fd/0", F_OK) == 0)
        usleep(1000);
    _exit(vb_host_refuses() == RSN_OWN_RDMA ? 0 : 1);
}

/* A program's device, and its first thread has ended. */
static void child(void)
{
    pthread_t t;

    if (unshare(CLONE_NEWNS) < 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0 ||
        mount("none", "/dev", "tmpfs", 0, NULL) < 0 || mkdir("/dev/infiniband", 0700) < 0 ||
        mknod("/dev/infiniband/uverbs0", S_IFCHR | 0600, makedev(1, 3)) < 0 ||
        open("/dev/infiniband/uverbs0", O_RDWR | O_CLOEXEC) < 0)
        _exit(77);
    if (pthread_create(&t, NULL, after_it, NULL) != 0)
        _exit(2);
    SYS6(SYS_exit, 0, 0, 0, 0, 0, 0);
}

TEST_CASE(verbs_host, the_first_thread_may_have_ended)
{
    int status = 0;
    pid_t pid = fork();

    if (pid == 0)
        child();
    ASSERT(pid > 0 && waitpid(pid, &status, 0) == pid);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 77)
        SKIP("no mounts, or no devices");
    EXPECT_EQ_INT(status, 0);
}
