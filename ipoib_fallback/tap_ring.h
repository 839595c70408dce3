/*
 * tap_ring.h - between `railsock tap` and the library in the process that it taps. How it begins:
 *
 *   the tool      listens on an abstract unix name with a random key in it, and writes the key into
 *                 the connection's slot of the process's file (pub.h), which only its user and root
 *                 can
 *   the library   sees at the connection's next send or receive that the key is not 0, connects to
 *                 the name from the progress thread, looks who listens (SO_PEERCRED), says hello
 *   the tool      looks who has connected, and passes a sealed memfd
 *   the library   copies what the application sends and receives into it, as records
 *
 * One writer, the library, and one reader. The writer never waits: what there is no room for is
 * counted and left out. The socket stays open; who sees it close knows that the other one is gone.
 * Neither trusts what the other one writes: positions and lengths are loaded once and bounded.
 */
#ifndef FB_TAP_RING_H
#define FB_TAP_RING_H

#include "ipoib_fallback/pub.h"

#define TAP_MAGIC   0x706174206c696172ull /* "rail tap" */
#define TAP_VERSION 1u
#define TAP_NAME    "railsock-tap.%016llx" /* without the NUL before it */
#define TAP_HEADER  4096u                  /* of the memfd; the ring follows */
#define TAP_LEAST   (128u << 10)           /* the ring's size: a power of two */
#define TAP_MOST    (256u << 20)
#define TAP_PIECE   61440u /* bytes of the stream in one record, so that it fits one IP packet */

enum { TAP_WELCOME, TAP_FULL, TAP_UNTRACEABLE };

struct tap_hello { /* the library's */
    uint64_t magic;
    uint32_t version, why; /* why not: TAP_FULL, TAP_UNTRACEABLE */
    uint32_t slot, gen;    /* of the connection, as in pub.h */
};

struct tap_grant { /* the tool's, with the memfd */
    uint64_t magic;
    uint32_t version;
    uint32_t size; /* of the ring */
    uint32_t snap; /* bytes to keep of a record; 0: all */
    uint32_t unused;
};

enum tap_kind {
    TAP_DATA,
    TAP_BEGIN, /* the first one of each direction: where it stands */
    TAP_FIN,   /* sent: closed or shut down; received: the end was read */
    TAP_RESET, /* the same with an error */
    TAP_END    /* nothing comes any more: it is closed, or for the reason that is given */
};
enum { TAP_RX = 1, TAP_UNSEEN = 2 /* the bytes were counted, but nobody has them: sendfile */ };

/* Records begin at multiples of 8, and may wrap. */
struct tap_record {
    uint32_t kept; /* bytes that follow */
    uint32_t len;  /* bytes of the stream */
    uint64_t at;   /* number of the first one */
    uint64_t time; /* CLOCK_REALTIME, ns */
    uint8_t kind;  /* enum tap_kind */
    uint8_t path;  /* enum fb_path */
    uint8_t flags;
    uint8_t unused;
    uint16_t reason; /* why the connection is not on a rail: reason.def */
    uint16_t unused2;
    uint32_t lost; /* packets, of both directions, for which there was no room just before */
    uint32_t unused3;
};

struct tap_ring {
    /* The library's. */
    _Alignas(64) _Atomic uint64_t tail; /* bytes ever written */
    struct {
        _Atomic uint64_t packets, bytes;
    } lost[FB_PATH_VERBS + 1];          /* there was no room for them */
    _Alignas(64) _Atomic uint64_t head; /* the tool's: bytes ever read */
};

#endif
