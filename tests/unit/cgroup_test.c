/*
 * cgroup_test.c - the least memory limit above a process, and for how long a CPU quota has held it
 * back, in trees as version 1, version 2 and containers have them.
 */
#include "config/cgroup.h"
#include "tests/shim/shim.h"

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

static char top[] = "/tmp/cgroup_test.XXXXXX", name[400];

static const char *in_top(const char *path)
{
    snprintf(name, sizeof(name), "%s/%s", top, path);
    return name;
}

static void put(const char *path, const char *text)
{
    FILE *f;
    char *slash;

    in_top(path);
    for (slash = strchr(name + sizeof(top), '/'); slash; slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        mkdir(name, 0755);
        *slash = '/';
    }
    f = fopen(name, "w");
    ASSERT(f && fputs(text, f) >= 0 && fclose(f) == 0);
}

static int unmade(const char *path, const struct stat *st, int kind, struct FTW *at)
{
    (void)st;
    (void)kind;
    (void)at;
    return remove(path);
}

static void begin(const char *own)
{
    strcpy(top + sizeof(top) - 7, "XXXXXX");
    ASSERT(mkdtemp(top));
    put("own", own);
}

static struct cfg_cgroups groups;

static uint64_t found(void)
{
    char own[400];
    uint64_t n;

    strcpy(own, in_top("own"));
    n = cfg_cgroup_memory(&groups, own, top);
    EXPECT(!groups.no_fd);
    return n;
}

static void end(void)
{
    nftw(top, unmade, 8, FTW_DEPTH | FTW_PHYS);
}

TEST_CASE(cgroup, version_2)
{
    begin("0::/system.slice/a:b.service\n");
    EXPECT(found() == UINT64_MAX);
    put("system.slice/a:b.service/memory.max", "max\n");
    EXPECT(found() == UINT64_MAX);
    put("system.slice/memory.max", "300\n");
    EXPECT_EQ_INT(found(), 300);
    put("system.slice/a:b.service/memory.max", "200\n");
    EXPECT_EQ_INT(found(), 200);
    put("system.slice/memory.max", "100\n");
    EXPECT_EQ_INT(found(), 100);
    put("memory.max", "50\n");
    EXPECT_EQ_INT(found(), 50);
    end();
}

/* Its own namespace of control groups: the path is the root. */
TEST_CASE(cgroup, container)
{
    begin("0::/\n");
    put("memory.max", "1000000");
    EXPECT_EQ_INT(found(), 1000000);
    end();
}

TEST_CASE(cgroup, version_1)
{
    begin("9:name=systemd:/\n4:cpu,memory,blkio:/docker/0a\n3:cpuset:/memory\n");
    /* The host's path, of which the container has only what is below. */
    put("memory/memory.limit_in_bytes", "9223372036854771712\n");
    EXPECT(found() == 9223372036854771712u);
    put("memory/memory.limit_in_bytes", "4096\n");
    EXPECT_EQ_INT(found(), 4096);
    put("memory/docker/0a/memory.limit_in_bytes", "2048\n");
    EXPECT_EQ_INT(found(), 2048);
    put("memory/docker/memory.limit_in_bytes", "1024\n");
    EXPECT_EQ_INT(found(), 1024);
    /* Of no use to those that are in no group of that kind. */
    put("memory.max", "1\n");
    EXPECT_EQ_INT(found(), 1024);
    end();
}

TEST_CASE(cgroup, both)
{
    begin("5:memory:/a\n0::/b\n");
    put("memory/a/memory.limit_in_bytes", "70\n");
    put("b/memory.max", "60\n");
    EXPECT_EQ_INT(found(), 60);
    put("memory/a/memory.limit_in_bytes", "50\n");
    EXPECT_EQ_INT(found(), 50);
    end();
}

TEST_CASE(cgroup, nonsense)
{
    static const char *const own[] = {
        "", "\n\n", "0", "0:", "0::", ":memory:", "memory:/a", "0::a"};

    for (size_t i = 0; i < sizeof(own) / sizeof(own[0]); i++) {
        begin(own[i]);
        EXPECT(found() == UINT64_MAX);
        end();
    }
    begin("0::/a\n");
    put("a/memory.max", "");
    EXPECT(found() == UINT64_MAX);
    put("a/memory.max", "-5\n");
    EXPECT(found() == UINT64_MAX);
    put("a/memory.max", "99999999999999999999\n");
    EXPECT(found() == UINT64_MAX);
    put("a/memory.max", "100000000000000000000000000000\n"); /* longer than any */
    EXPECT(found() == UINT64_MAX);
    put("a/memory.max", "12 \n");
    EXPECT_EQ_INT(found(), 12);
    end();
}

TEST_CASE(cgroup, long_path)
{
    char text[1600];

    memcpy(text, "0::/", 4);
    memset(text + 4, 'x', sizeof(text) - 5);
    text[sizeof(text) - 1] = '\0';
    begin(text);
    put("memory.max", "10\n");
    EXPECT(found() == UINT64_MAX);
    end();
}

TEST_CASE(cgroup, no_descriptor)
{
    struct rlimit was, none = {0};
    char own[400];

    begin("0::/\n");
    put("memory.max", "10\n");
    strcpy(own, in_top("own"));
    ASSERT(getrlimit(RLIMIT_NOFILE, &was) == 0);
    none.rlim_max = was.rlim_max;
    ASSERT(setrlimit(RLIMIT_NOFILE, &none) == 0);
    EXPECT(cfg_cgroup_memory(&groups, own, top) == UINT64_MAX);
    EXPECT(groups.no_fd);
    ASSERT(setrlimit(RLIMIT_NOFILE, &was) == 0);
    EXPECT_EQ_INT(cfg_cgroup_memory(&groups, own, top), 10);
    EXPECT(!groups.no_fd);
    end();
}

static uint64_t throttled(void)
{
    char own[400];

    strcpy(own, in_top("own"));
    return cfg_cgroup_throttled(&groups, own, top);
}

TEST_CASE(cgroup, quota_of_version_2)
{
    begin("0::/kube/pod/own\n");
    EXPECT(throttled() == UINT64_MAX);
    put("kube/pod/own/cpu.stat", "usage_usec 70\nuser_usec 50\nsystem_usec 20\n");
    EXPECT(throttled() == UINT64_MAX);
    put("kube/pod/own/cpu.stat",
        "usage_usec 70\nnr_periods 0\nnr_throttled 0\nthrottled_usec 0\nnr_bursts 0\n");
    EXPECT(throttled() == UINT64_MAX);
    put("kube/pod/cpu.stat",
        "usage_usec 70\nnr_periods 9\nnr_throttled 2\nthrottled_usec 31\nnr_bursts 0\n");
    EXPECT_EQ_INT(throttled(), 31000);
    /* Whichever grows. */
    put("kube/pod/own/cpu.stat", "nr_periods 3\nnr_throttled 1\nthrottled_usec 12");
    EXPECT_EQ_INT(throttled(), 43000);
    put("kube/pod/own/cpu.stat", "nr_periods 3\nnr_throttled 0\nthrottled_usec 0\n");
    put("kube/pod/cpu.stat", "nr_periods 9\nnr_throttled 0\nthrottled_usec 0\n");
    EXPECT_EQ_INT(throttled(), 0);
    /* A number that no counter reaches, and what is no number. */
    put("kube/pod/cpu.stat", "nr_periods 9\nthrottled_usec 18446744073709551\n");
    EXPECT_EQ_INT(throttled(), 0);
    put("kube/pod/cpu.stat", "nr_periods 9\nthrottled_usec -1\n");
    EXPECT_EQ_INT(throttled(), 0);
    put("kube/pod/cpu.stat", "nr_periods 9\nthrottled_usecs 77\n\nnr_throttled 4");
    EXPECT_EQ_INT(throttled(), 0);
    end();
}

TEST_CASE(cgroup, quota_of_version_1)
{
    begin("9:name=systemd:/\n5:cpuset:/own\n4:cpu,cpuacct:/docker/0a\n0::/\n");
    put("cpu/cpu.stat", "nr_periods 4\nnr_throttled 2\nthrottled_time 1234\n");
    EXPECT_EQ_INT(throttled(), 1234);
    put("cpu/docker/0a/cpu.stat", "nr_periods 4\nnr_throttled 2\nthrottled_time 4321\n");
    EXPECT_EQ_INT(throttled(), 5555);
    /* Not of a group that it is not in. */
    put("cpu/own/cpu.stat", "nr_periods 4\nnr_throttled 2\nthrottled_time 9999\n");
    EXPECT_EQ_INT(throttled(), 5555);
    end();
}

static int opened, closed;

static int open_it(const char *path)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);

    opened += fd >= 0;
    return fd < 0 ? -errno : fd;
}

static void close_it(int fd)
{
    closed += close(fd) == 0;
}

TEST_CASE(cgroup, files_of_the_callers)
{
    char own[400];
    struct cfg_cgroups theirs = {.open = open_it, .close = close_it};

    begin("0::/a/b\n");
    put("a/cpu.stat", "nr_periods 9\nnr_throttled 2\nthrottled_usec 3\n");
    strcpy(own, in_top("own"));
    EXPECT_EQ_INT(cfg_cgroup_throttled(&theirs, own, top), 3000);
    EXPECT_EQ_INT(opened, 2);
    EXPECT_EQ_INT(closed, 2);
    end();
}
