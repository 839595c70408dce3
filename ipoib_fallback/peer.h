/*
 * peer.h - what is remembered of peers for a while, by host, or by host and port: tables of
 * PEERS entries, each of which begins with a struct peer, and is empty when all of it is 0.
 * Progress thread.
 */
#ifndef FB_PEER_H
#define FB_PEER_H

#include "rsock/wire.h"

#define PEERS 512u

struct peer {
    uint64_t until; /* from when on, as fb_io.now(), it can be forgotten: its user's */
    uint8_t addr[16];
    uint16_t port; /* 0: the whole host */
    uint8_t family;
};

/* The entry, of `size` bytes, of t's host and that port; NULL: there is none. */
void *peer_find(void *table, size_t size, const struct rsk_tuple *t, uint16_t port);
/* The same, made if there is none, and all behind its struct peer is 0: then it takes the place of
 * one that can be forgotten before the others which it could take the place of. */
void *peer_note(void *table, size_t size, const struct rsk_tuple *t, uint16_t port);

#endif
