/*
 * pl_foreign.c - what the process has besides us that could take bytes or wake-ups of a stream on a
 * rail (HARD-CASES 2): an io_uring of its own, or an epoll instance that we do not know (inherited,
 * or made behind our back) with the socket in it. Looked at before a stream asks for a rail, and
 * before it is given one. libraries enter io_uring without a call that we could see.
 *
 * One look at all numbers serves all streams for a moment: a server with ten thousand connections
 * would otherwise look at them ten thousand times. What is a socket, which is nearly all of them
 * there, is asked no further: a name in /proc costs six times as much (seen on a busy machine: 50
 * ms for ten thousand, 8 ms this way). And the moment is so long that the looks take a twentieth of
 * the progress thread's time at most. A ring's number may be closed while it goes on by its
 * registration; its queues stay mapped. Progress thread.
 */
#include "preload/pl_own.h"

#include "config/env.h"
#include "config/reason.h"
#include "rsock/loop.h"
#include "rsock/own.h"
#include "rsock/sys.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define FRESH_NS 50000000u

enum { INSTANCES = 64 };

static uint64_t seen_at, fresh_ns;
static bool ring;
static unsigned rings; /* pl_rings when it was looked for */
static int instances[INSTANCES];
static int n_instances; /* unknown epoll instances; beyond INSTANCES they are only counted */

static bool known(int fd)
{
    /* A parent's is not asked for. */
    PL_HELD f = pl_hold_number(fd);

    return f && f->kind == PL_EPOLL;
}

static void note(int fd)
{
    char path[48], target[40] = "";
    int type;
    socklen_t len = sizeof(type);

    if (sys_getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &len) != -ENOTSOCK || rsk_own_has(fd))
        return;
    snprintf(path, sizeof(path), "/proc/thread-self/fd/%d", fd);
    if (SYS6(SYS_readlinkat, AT_FDCWD, path, target, sizeof(target) - 1, 0, 0) < 0)
        return;
    if (strcmp(target, "anon_inode:[io_uring]") == 0)
        ring = true;
    else if (strcmp(target, "anon_inode:[eventpoll]") == 0 && !known(fd) &&
             n_instances++ < INSTANCES)
        instances[n_instances - 1] = fd;
}

/* "START-END ... anon_inode:[io_uring]", and not ours. */
static bool is_ring(const char *line, size_t n)
{
    static const char name[] = "anon_inode:[io_uring]";

    return n > sizeof(name) && memcmp(line + n - sizeof(name) + 1, name, sizeof(name) - 1) == 0 &&
           !rsk_loop_maps((uintptr_t)strtoull(line, NULL, 16));
}

static bool ring_is_mapped(void)
{
    char buf[8192];
    size_t have = 0;
    bool found = false;
    ssize_t n;
    int file;

    file = rsk_own_fd(sys_open("/proc/thread-self/maps", O_RDONLY | O_CLOEXEC, 0));
    while (file >= 0 && !found && (n = sys_read(file, buf + have, sizeof(buf) - have)) > 0) {
        char *line = buf, *end;

        have += (size_t)n;
        while (!found && (end = memchr(line, '\n', have)) != NULL) {
            found = is_ring(line, (size_t)(end - line));
            have -= (size_t)(end + 1 - line);
            line = end + 1;
        }
        if (have == sizeof(buf)) /* no name is so long */
            have = 0;
        memmove(buf, line, have);
    }
    rsk_own_close(file);
    return file < 0 ? atomic_load(&pl_rings) != 0 : found; /* who has made one may have it still */
}

static void walk(void)
{
    uint64_t began = sys_now();
    int n = pl_numbers();

    rings = atomic_load(&pl_rings);
    ring = false;
    n_instances = 0;
    for (int fd = 0; fd < n; fd++)
        note(fd);
    ring = ring || (!cfg.ring_for_files && ring_is_mapped());
    seen_at = sys_now();
    fresh_ns = 20 * (seen_at - began);
    if (fresh_ns < FRESH_NS)
        fresh_ns = FRESH_NS;
}

/*
 * Does that instance watch the socket? fdinfo has a line "tfd: FD events: ... ino:INODE sdev: ..."
 * for each member. FD is a number of whoever registered it, which may be another process; who has
 * no INODE (before Linux 4.13) has to go by that. *gone: its number is closed by now.
 */
static bool watches(int instance, int fd, bool *gone)
{
    char path[48], buf[4096], number[24], inode[32];
    bool by_number = false, by_inode = false, inodes = false;
    struct stat st = {0};
    size_t have = 0;
    ssize_t n;
    int file;

    if (SYS6(SYS_fstat, fd, &st, 0, 0, 0, 0) < 0)
        return false;
    snprintf(path, sizeof(path), "/proc/thread-self/fdinfo/%d", instance);
    snprintf(number, sizeof(number), "tfd: %8d ", fd);
    snprintf(inode, sizeof(inode), " ino:%llx sdev:", (unsigned long long)st.st_ino);
    file = rsk_own_fd(sys_open(path, O_RDONLY | O_CLOEXEC, 0)); /* many lines may be in it */
    while (file >= 0 && !by_inode && (n = sys_read(file, buf + have, sizeof(buf) - have)) > 0) {
        size_t keep = sizeof(inode); /* what was cut off by the end of the buffer */

        have += (size_t)n;
        by_number |= memmem(buf, have, number, strlen(number)) != NULL;
        by_inode = memmem(buf, have, inode, strlen(inode)) != NULL;
        inodes |= memmem(buf, have, " ino:", 5) != NULL;
        if (have > keep) {
            memmove(buf, buf + have - keep, keep);
            have = keep;
        }
    }
    rsk_own_close(file);
    *gone |= file == -ENOENT;
    /* If not seen: it cannot be seen that it does not. */
    return (inodes ? by_inode : by_number) || (file < 0 && file != -ENOENT);
}

/* By the last look. *gone: an instance that it found is closed by now; perhaps one of the program's
 * own, which was so new then that the table did not have it yet. */
static int judge(const int fds[4], bool *gone)
{
    *gone = false;
    if (ring && !cfg.ring_for_files)
        return RSN_IO_URING;
    if (n_instances > INSTANCES)
        return RSN_EPOLL;
    for (int i = 0; i < n_instances; i++)
        for (int j = 0; j < 4; j++)
            if (fds[j] >= 0 && watches(instances[i], fds[j], gone))
                return RSN_EPOLL;
    return 0;
}

static int foreign(const int fds[4])
{
    int reason;
    bool gone;

    if (sys_now() - seen_at > fresh_ns || rings != atomic_load(&pl_rings))
        walk();
    reason = judge(fds, &gone);
    if (!gone || reason)
        return reason;
    walk();
    return judge(fds, &gone);
}

__attribute__((constructor)) static void at_load(void)
{
    fb_on_foreign(foreign);
}
