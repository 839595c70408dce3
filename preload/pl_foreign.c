/*
 * pl_foreign.c - what the process has besides us that could take bytes or wake-ups of a stream on a rail
 * (HARD-CASES 2): an io_uring of its own, or an epoll instance that we do not know (inherited, or made
 * behind our back) with the socket in it. Looked at before a stream asks for a rail, and before
 * it is given one. libraries enter io_uring without a call that we could see.
 *
 * One walk through /proc/self/fd serves all streams for a moment: a server with ten thousand
 * connections would otherwise walk through them ten thousand times. Progress thread.
 */
#include "preload/pl_own.h"

#include "config/reason.h"
#include "rsock/own.h"
#include "rsock/sys.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FRESH_NS 50000000u

enum { INSTANCES = 64 };

struct dirent64 {
    uint64_t ino;
    int64_t off;
    uint16_t reclen;
    uint8_t type;
    char name[];
};

static uint64_t seen_at;
static bool ring;
static int instances[INSTANCES];
static int n_instances; /* unknown epoll instances; beyond INSTANCES they are only counted */

static bool known(int fd)
{
    PL_HELD f = pl_hold(fd);

    return f && f->kind == PL_EPOLL;
}

static void note(int dir, const char *name)
{
    char target[40] = "";
    int fd = atoi(name);

    if (name[0] == '.' || rsk_own_has(fd) ||
        SYS6(SYS_readlinkat, dir, name, target, sizeof(target) - 1, 0, 0) < 0)
        return;
    if (strcmp(target, "anon_inode:[io_uring]") == 0)
        ring = true;
    else if (strcmp(target, "anon_inode:[eventpoll]") == 0 && !known(fd) &&
             n_instances++ < INSTANCES)
        instances[n_instances - 1] = fd;
}

static void walk(void)
{
    _Alignas(8) char buf[4096] = {0};
    int dir = sys_open("/proc/self/fd", O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0);
    long n;

    ring = false;
    n_instances = 0;
    while (dir >= 0 && (n = SYS6(SYS_getdents64, dir, buf, sizeof(buf), 0, 0, 0)) > 0)
        for (long at = 0; at < n;) {
            const struct dirent64 *d = (const void *)(buf + at);

            note(dir, d->name);
            at += d->reclen;
        }
    if (dir >= 0)
        sys_close(dir);
    seen_at = sys_now();
}

/* Does that instance watch fd? fdinfo has a line "tfd: FD events: ..." for each member. */
static bool watches(int instance, int fd)
{
    char path[48], buf[4096], want[24];
    size_t have = 0, len;
    bool found = false;
    ssize_t n;
    int file;

    snprintf(path, sizeof(path), "/proc/self/fdinfo/%d", instance);
    len = (size_t)snprintf(want, sizeof(want), "tfd: %8d ", fd);
    file = sys_open(path, O_RDONLY | O_CLOEXEC, 0);
    while (file >= 0 && !found && (n = sys_read(file, buf + have, sizeof(buf) - have)) > 0) {
        have += (size_t)n;
        found = memmem(buf, have, want, len) != NULL;
        if (have > len) { /* what was cut off by the end of the buffer */
            memmove(buf, buf + have - len, len);
            have = len;
        }
    }
    if (file >= 0)
        sys_close(file);
    return found;
}

static int foreign(const int fds[4])
{
    if (sys_now() - seen_at > FRESH_NS)
        walk();
    if (ring)
        return RSN_IO_URING;
    if (n_instances > INSTANCES)
        return RSN_EPOLL;
    for (int i = 0; i < n_instances; i++)
        for (int j = 0; j < 4; j++)
            if (fds[j] >= 0 && watches(instances[i], fds[j]))
                return RSN_EPOLL;
    return 0;
}

__attribute__((constructor)) static void at_load(void)
{
    fb_on_foreign(foreign);
}
