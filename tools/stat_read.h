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
    char where[sizeof(((struct fb_pub_rail *)0)->where) + 1]; /* of its last rail; printable */
    uint32_t tx_ring, rx_ring;                                /* bytes, 0: never had a rail */
    uint64_t pause_last, pause_most;                          /* ns, 0: no switch yet */
    uint32_t slot, gen; /* which connection of its process it is */
    uint64_t inode;     /* of its socket, if its process does not know its addresses; else 0 */
    /* Filled in by stat_rates and stat_rings. */
    bool rated, tx_used_known, rx_used_known;
    uint64_t tx_rate, rx_rate; /* bytes a second */
    uint64_t tx_used, rx_used; /* bytes in the ring */
};

struct stat_closed {
    uint64_t connections, boarded, tx, rx, rail_tx, rail_rx, switches;
    uint64_t by_reason[64];
    /* Filled in by stat_rates: of those that have closed since the earlier reading. */
    bool rated;
    uint64_t tx_rate, rx_rate; /* bytes a second */
};

struct stat_process {
    uint32_t pid;
    /* One of its threads that has not ended: what /proc/PID says of files and namespaces is the
     * main thread's. */
    uint32_t thread;
    uint64_t start_time;
    uid_t uid;
    char program[sizeof(((struct fb_pub_file *)0)->program) + 1]; /* any bytes but NUL */
    struct stat_closed closed;
    struct stat_conn *conns;
    size_t nconns;
};

struct stat_list {
    struct stat_process *processes; /* by pid */
    size_t n;
    bool some;        /* only some connections of them: nothing is known of the closed ones */
    uint32_t *others; /* processes that show themselves as another version of railsock does */
    size_t n_others;
    const char *lacking; /* why processes may be missing, in words to follow a colon; NULL: none */
};

/*
 * Reads every file of a living process below base (STAT_BASE) that this user may read, or of one
 * process if pid is not 0. Files of dead processes that belong to this user are removed. complain
 * is called with a path and why it was ignored, if it is neither. 0 or -errno; the list is to be
 * freed in any case. Addresses that a process does not know are left to stat_addresses.
 */
int stat_read(const char *base, uint32_t pid, void (*complain)(const char *path, const char *why),
              struct stat_list *list) __attribute__((warn_unused_result));

/* One file that was kept in dir for `railsock run --report`; dead or not if `living`, else only a
 * dead process's: -1 with errno EBUSY for one that runs, or may run in another PID namespace,
 * EPROTO for one of another version. 0: *p is filled, p->conns is to be freed in any case. */
int stat_read_kept(int dir, const char *name, bool living, struct stat_process *p)
    __attribute__((warn_unused_result));
/* The inode of the socket that is a process's number fd; 0: none, or it cannot be seen. */
uint64_t stat_inode(const struct stat_process *, int fd);
/* Fills in the addresses of connections that have an inode, of all processes in the list. */
void stat_addresses(struct stat_list *list);
/* Fills in the rates of `now` from what the same connections had moved `ns` nanoseconds before. */
void stat_rates(const struct stat_list *before, struct stat_list *now, uint64_t ns);
/* Fills in how full the rings are: what one end has sent and the other, if it is in the list as
 * well, not yet read. */
void stat_rings(struct stat_list *list);
void stat_free(struct stat_list *list);

#endif
