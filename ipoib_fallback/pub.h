/*
 * pub.h - what a process shows of its connections: one file per process,
 * /dev/shm/railsock-EUID/PID (directory 0700, file 0600), mapped by the library
 * and read by `railsock stat`. The counters that the library itself uses live in
 * it, so showing them costs nothing.
 *
 * The reader trusts nothing in it. A slot is consistent when `gen` is odd and equal before and
 * after reading, and `role` does not say afterwards that it is being added to the file's sums, of
 * which `closed` is written last. Counters move while they are read: a call adds to tx before it
 * adds to rail_tx, so the reader takes rail_tx first.
 */
#ifndef FB_PUB_H
#define FB_PUB_H

#include <stdatomic.h>
#include <stdint.h>
#include <sys/stat.h>

#define FB_PUB_MAGIC   0x6b636f736c696172ull /* "railsock" */
#define FB_PUB_VERSION 6u
/* From this version on a file says whose namespace its number is of, at this place in
 * all that come. */
#define FB_PUB_NAMESPACED 6u
/* With the effective uid; and .NAMESPACE where its pid is another namespace's in there already. */
#define FB_PUB_DIR "/dev/shm/railsock-%u"

#define FB_MAX_STREAMS (256u * 1024)

enum fb_path { FB_PATH_TCP, FB_PATH_SHM, FB_PATH_VERBS };

struct fb_pub_addr {
    uint16_t family;  /* AF_INET, AF_INET6, 0 = not known */
    uint16_t port;    /* host order */
    uint8_t addr[16]; /* network order; IPv4 in the first 4 bytes */
};

/* What each connection has. */
struct fb_pub {
    _Atomic uint32_t gen; /* odd: in use */
    int32_t fd;
    /* What every call looks at, beside what it writes: not 0 if a tool wants a copy of the bytes
     * (tap_ring.h), which is the one thing here that somebody else writes. */
    _Atomic uint64_t tap;
    _Atomic uint64_t tx, rx; /* application bytes written and read since establishment */
    struct fb_pub_addr local, peer;
    _Atomic uint16_t reason;          /* why not on a rail: reason.def; of this end */
    _Atomic uint16_t peer_reason;     /* as told by the peer; 0 = nothing told */
    _Atomic uint8_t path_tx, path_rx; /* enum fb_path of each direction now */
    uint8_t role;                     /* FB_PUB_*: 0 connected */
    _Atomic uint8_t lent;             /* FB_LENT_*: between the owner and forked children */
};
_Static_assert(sizeof(struct fb_pub) <= 80, "every tracked connection has one");

/* What those have that wanted a rail: zero for the others, and a hole in the file. */
struct fb_pub_rail {
    _Atomic uint64_t rail_tx, rail_rx; /* of the bytes, over a rail */
    _Atomic uint64_t boarded_at; /* CLOCK_REALTIME nanoseconds of the last boarding; 0 = never */
    _Atomic uint32_t switches;   /* changes of track, both directions together */
    _Atomic uint32_t retries;    /* boardings that were tried and did not come about */
    /* Of the last rail: where it runs ("shm", "rxe0/1"), the sizes of its rings. */
    char where[24];
    _Atomic uint32_t tx_ring, rx_ring;
    /* Nanoseconds for which a switch of the sending half has kept the application's bytes waiting:
     * the last one, in both directions of the switch, and the longest. 0: none yet. */
    _Atomic uint64_t pause_last, pause_most;
};

/* fb_pub.role. CLOSING: its sums are about to be those of the file. */
enum { FB_PUB_ACCEPTED = 1, FB_PUB_CLOSING = 2 };

/* fb_pub.lent; heir.c says how they are used, and given.c of the last two. */
enum {
    FB_LENT_BUSY = 1,
    FB_LENT_FOREIGN = 2,
    FB_LENT_AWAY = 4,
    FB_LENT_OFTEN = 8,
    FB_LENT_GIVEN = 16
};

#define FB_PUB_FOREIGN 16

struct fb_pub_file {
    uint64_t magic;
    uint32_t version;
    uint32_t pid;
    uint64_t start_time;    /* field 22 of /proc/PID/stat: tells a reused pid */
    uint64_t pid_namespace; /* inode of /proc/PID/ns/pid; 0 = not known */
    char program[64];
    uint32_t nslots; /* slots that the file has room for now; the file is extended as needed */
    _Atomic uint32_t serving; /* forked children are answered */
    /* Epoll instances that forked children use, and whether there are more; forks so far that a
     * child holds connections of. */
    _Atomic uint64_t foreign_epoll[FB_PUB_FOREIGN];
    _Atomic uint32_t foreign_epolls, forks;
    /* Sums over the connections that are closed. */
    _Atomic uint64_t closed, closed_boarded, closed_tx, closed_rx, closed_rail_tx, closed_rail_rx;
    _Atomic uint64_t closed_switches;
    /* connections that never boarded, by their last reason */
    _Atomic uint64_t closed_by_reason[64];
    _Alignas(64) struct fb_pub slot[];
};
/* A struct fb_pub_rail for each slot follows behind the last slot that there can be. */
#define FB_PUB_RAILS (sizeof(struct fb_pub_file) + (size_t)FB_MAX_STREAMS * sizeof(struct fb_pub))
/* Last, on pages of their own: what given.c notes of sockets that this process has passed on,
 * each at its cookie modulo their number. A hole as long as there are none. Who has received one
 * writes there, too. */
#define FB_PUB_GIVEN \
    ((FB_PUB_RAILS + (size_t)FB_MAX_STREAMS * sizeof(struct fb_pub_rail) + 65535) / 65536 * 65536)
#define FB_PUB_GIVEN_SLOTS 512u
#define FB_PUB_GIVEN_SHIFT 8 /* of the cookie in a word */

/* The PID namespace of who has written a file, of whatever version, whose head was read this far;
 * 0: it does not say. */
static inline uint64_t fb_pub_namespace(const struct fb_pub_file *f)
{
    return f->magic == FB_PUB_MAGIC && f->version >= FB_PUB_NAMESPACED ? f->pid_namespace : 0;
}

/* That of this process, for pid_namespace. */
static inline uint64_t fb_pub_own_namespace(void)
{
    struct stat st;

    return stat("/proc/self/ns/pid", &st) == 0 ? st.st_ino : 0;
}

#endif
