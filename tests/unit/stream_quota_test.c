/*
 * stream_quota_test.c - a stream's waits spin no longer than briefly where its control group's
 * files, which are made up here, say that a CPU quota holds the process back; and its bytes
 * pass all the same.
 */
#include "tests/shim/shim.h"
#include "tests/unit/stream_pair.h"

#include "ipoib_fallback/quota.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>

enum { BRIEF = 20000 }; /* ns: what cfg_stream_defaults say */

static void say(const char *name, const char *counter, uint64_t n)
{
    char text[100], other[100];
    int fd, len = snprintf(text, sizeof(text), "nr_periods 9\nnr_throttled 3\n%s %llu\n", counter,
                           (unsigned long long)n);

    snprintf(other, sizeof(other), "%s.new", name);
    fd = open(other, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    ASSERT(fd >= 0 && write(fd, text, (size_t)len) == len);
    close(fd);
    ASSERT(rename(other, name) == 0);
}

/* Of version 2 and 1: a machine has its processes in groups of one of them, or of both. */
static void throttled(uint64_t ns)
{
    say("/sys/fs/cgroup/cpu.stat", "throttled_usec", ns / 1000);
    say("/sys/fs/cgroup/cpu/cpu.stat", "throttled_time", ns);
}

static void child(void)
{
    struct cfg_stream fixed = cfg_stream_defaults;
    struct fb_conn other = {.set = &fixed};
    struct fb_spin fresh = {0};
    struct echo x = {0};
    struct end a;
    pthread_t t;
    uint64_t pos = 0, begin, limit, next = 0;

    if (unshare(CLONE_NEWNS) < 0 || mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0 ||
        mount("none", "/sys/fs/cgroup", "tmpfs", 0, NULL) < 0)
        SKIP("a mount namespace cannot be had");
    ASSERT(mkdir("/sys/fs/cgroup/cpu", 0755) == 0);
    throttled(1000);
    ASSERT(echo_boarded(&a, &x, &t, &pos));
    /* Forgets slowly: as where sleeping is dear. */
    for (int i = 0; i < 100; i++)
        spin_measured(70000, false);
    EXPECT(fb_spin_most() > BRIEF);
    /* Held back all the time. A look of its own every now and then is enough for the
     * group's file. */
    begin = sys_now();
    limit = begin + PATIENCE;
    while (fb_spin_most() > BRIEF) {
        ASSERT(sys_now() < limit);
        if (sys_now() >= next) {
            throttled(sys_now() - begin);
            next = sys_now() + FB_QUOTA_LOOK / 10;
        }
        ASSERT(round_trip(&a, &pos, 100));
    }
    EXPECT_EQ_INT(fb_spin_most(), BRIEF);
    EXPECT_EQ_INT(spin_budget(conn_of(a.s), &fresh), BRIEF);
    for (int i = 0; i < 1000; i++)
        ASSERT(round_trip(&a, &pos, 1 + (size_t)i));
    EXPECT(boarded(&a));
    /* Who was told for how long to spin does. */
    fixed.spin_auto = false;
    fixed.spin_ns = 50000;
    EXPECT_EQ_INT(spin_budget(&other, &fresh), 50000);
    done(&a);
    pthread_join(t, NULL);
    EXPECT(x.good);
}

TEST_CASE(stream_quota, used_up)
{
    int status = in_a_child(child);

    if (WIFEXITED(status) && WEXITSTATUS(status) == 77)
        SKIP("a mount namespace cannot be had");
    EXPECT_EQ_INT(status, 0);
}
