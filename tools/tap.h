/*
 * tap.h - the parts of `railsock tap`: asking a process for a connection's bytes, reading them, and
 * writing them as pcapng.
 */
#ifndef TOOLS_TAP_H
#define TOOLS_TAP_H

#include "ipoib_fallback/tap_ring.h"
#include "tools/stat_read.h"

#include <stdio.h>

/* ---- tap_ask.c: the connection to the process */

struct tap_link {
    /* Of whom. */
    uint32_t pid, thread, slot, gen;
    uid_t uid;
    uint64_t start_time, key;
    int file, listener, sock; /* -1: none */
    /* The ring, once the process has it. */
    int memfd;
    struct tap_ring *ring;
    const uint8_t *data;
    uint32_t size, snap;
    uint64_t head;
    uint64_t lost_packets[FB_PATH_VERBS + 1], lost_bytes; /* tap_count_lost */
};

#define TAP_NO_LINK                                         \
    (struct tap_link)                                       \
    {                                                       \
        .file = -1, .listener = -1, .sock = -1, .memfd = -1 \
    }

/* Writes the request. False: said on stderr why not. tap_close() in any case. */
bool tap_request(struct tap_link *, const struct stat_process *, const struct stat_conn *,
                 uint32_t size, uint32_t snap);
/* Waits ms for the process to come. 1: it has the ring; 0: not yet; -1: it will not, said why. */
int tap_wait(struct tap_link *, int ms);
/* The next record and its bytes, which stay until the next call. 1; 0: there is none now; -1: what
 * is there is no record. */
int tap_next(struct tap_link *, struct tap_record *, const uint8_t **bytes);
/* Sleeps until there may be more, at most ms. False: the process is gone. */
bool tap_sleep(struct tap_link *, int ms);
void tap_count_lost(struct tap_link *);
/* Where the connection's last verbs rail runs, as pub.h has it; "" if it has none. */
void tap_where(const struct tap_link *, char where[32]);
void tap_close(struct tap_link *);

/* ---- tap_pcapng.c: the file */

struct tap_file {
    FILE *f;
    struct fb_pub_addr local, peer;
    char where[32]; /* of a verbs rail; tap_file_where */
    uint32_t snap;
    uint64_t begun;                      /* CLOCK_REALTIME, ns */
    int interface[FB_PATH_VERBS + 1];    /* of each path; -1: not in the file yet */
    int interfaces;                      /* in the file */
    uint64_t packets[FB_PATH_VERBS + 1]; /* by path: of its present interface */
    uint64_t dropped;                    /* that verbs' interfaces before it have told of */
    uint64_t all, bytes;                 /* packets, and what of the stream is in them */
    struct tap_way {
        uint64_t next;   /* the number that follows */
        uint64_t unseen; /* bytes before it that nobody has seen */
        int path;        /* of its last packet, -1: none yet */
        bool lost;       /* a record has told of lost ones since, of either way */
        bool ended;      /* its FIN or RST is in the file */
    } way[2];            /* sent, received */
};

/* who: of whom the connection is, in words. Errors stay in f. */
void tap_file_begin(struct tap_file *, FILE *f, const char *who, const struct stat_conn *,
                    uint32_t snap);
void tap_file_put(struct tap_file *, const struct tap_record *, const uint8_t *bytes);
/* A verbs rail runs there from now on: an interface of its own, if it is another place.
 * lost: so far. */
void tap_file_where(struct tap_file *, const char *where, const uint64_t lost[FB_PATH_VERBS + 1]);
void tap_file_end(struct tap_file *, const uint64_t lost[FB_PATH_VERBS + 1]);
/* How many packets it has. */
uint64_t tap_file_packets(const struct tap_file *);

#endif
