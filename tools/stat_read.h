/*
 * stat_read.h - what processes show of their connections (ipoib_fallback/pub.h), read and
 * checked into plain memory.
 */
#ifndef TOOLS_STAT_READ_H
#define TOOLS_STAT_READ_H

#include "ipoib_fallback/pub.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define STAT_BASE "/dev/shm"

struct stat_conn {
    int fd;
    struct fb_pub_addr local, peer;
    unsigned reason, peer_reason;
    enum fb_path path_tx, path_rx;
    bool accepted;
    uint64_t tx, rx, rail_tx, rail_rx;
    uint64_t boarded_at; /* CLOCK_REALTIME nanoseconds, 0: never */
    uint32_t switches, retries;
};

struct stat_closed {
    uint64_t connections, boarded, tx, rx, rail_tx, rail_rx, switches;
    uint64_t by_reason[64];
};

struct stat_process {
    uint32_t pid;
    uid_t uid;
    char program[sizeof(((struct fb_pub_file *)0)->program) + 1]; /* any bytes but NUL */
    struct stat_closed closed;
    struct stat_conn *conns;
    size_t nconns;
};

struct stat_list {
    struct stat_process *processes; /* by pid */
    size_t n;
};

/*
 * Reads every file of a living process below base (STAT_BASE) that this user may read, or of
 * one process if pid is not 0. Files of dead processes that belong to this user are removed.
 * complain is called with a path and why it was ignored, if it is neither. 0 or -errno; the
 * list is to be freed in any case.
 */
int stat_read(const char *base, uint32_t pid, void (*complain)(const char *path, const char *why),
              struct stat_list *list) __attribute__((warn_unused_result));

/* One file that was kept in dir for `railsock run --report`; dead or not if `living`, else only a dead
 * process's: -1 with errno EBUSY for one that runs. 0: *p is filled, p->conns is to be freed in any case. */
int stat_read_kept(int dir, const char *name, bool living, struct stat_process *p)
    __attribute__((warn_unused_result));
void stat_free(struct stat_list *list);

#endif
