/*
 * verbs_proto.h - what two verbs wires say to each other: the private data of the rdma_cm
 * messages, the initiator's first SEND, the immediates, and the credit block.
 *
 * Structs go over the wire as they lie in memory: little-endian, no implicit padding. Each has
 * its own length because the rdma_cm hands over private data padded to the size of its message
 * (56 bytes for a REQ: 92 of the IB specification less the 36 of the rdma_cm's own header).
 * Features that one side does not know are ignored; another major version means TCP.
 */
#ifndef RSK_VERBS_PROTO_H
#define RSK_VERBS_PROTO_H

#include <stdint.h>

#define VB_MAGIC 0x4b535652u /* "RVSK" */
enum { VB_VERSION = 2 };

struct vb_hdr {
    uint32_t magic;
    uint8_t version;
    uint8_t len; /* of the whole struct */
    uint8_t ring_log2;
    uint8_t family;
    uint32_t features;
    uint32_t request;
};

struct vb_req {
    struct vb_hdr h;
    uint16_t src_port, dst_port; /* of the TCP connection, host order */
    uint8_t src[16], dst[16];
};
_Static_assert(sizeof(struct vb_req) == 52, "must fit a REQ's 56 bytes");

/* What a peer needs to write to us: REP of the acceptor, first SEND of the initiator. */
struct vb_desc {
    struct vb_hdr h;
    uint64_t ring, ctl, credit; /* addresses in our memory */
    uint32_t rkey;
    uint32_t messages; /* receive work requests posted at the start */
};
_Static_assert(sizeof(struct vb_desc) == 48, "descriptor size");

struct vb_rej {
    struct vb_hdr h;
    uint16_t reason;   /* reason.def */
    uint16_t redirect; /* ask this RDMA port instead; 0: none */
    uint32_t retry_ms; /* 0: no advice */
};
_Static_assert(sizeof(struct vb_rej) == 24, "reject size");

/* Cumulative, written by the receiver into the sender's memory. consumed is a stream position,
 * 0 until the first byte is consumed. */
struct vb_credit {
    uint64_t consumed; /* bytes of the ring */
    uint64_t messages; /* receive work requests posted again after use */
    uint64_t control;  /* control messages taken out of their slots */
    uint64_t seen;     /* the peer's `consumed` at which the last WAIT for bytes found no room */
};

enum { VB_CTL_SLOTS = 64, VB_MESSAGES = 64 };

/* Immediate, in network order on the wire: type 4 bits, flags 4, length 24. */
enum {
    VB_DATA = 1, /* length bytes follow those before; flags: VB_SEQ */
    VB_CTRL = 2, /* the next control slot is filled */
    VB_WAIT = 3, /* the sender waits for: flags VB_NEED_*; carries the sender's own credit block */
    VB_WAKE = 4, /* answers WAIT with a credit block */
};
enum {
    VB_SEQ = 3, /* DATA: number of the message, modulo 4 */
    VB_NEED_BYTES = 1,
    VB_NEED_MESSAGES = 2,
};

#define VB_IMM(type, flags, len) \
    ((uint32_t)(type) << 28 | (uint32_t)(flags) << 24 | (uint32_t)(len))

#endif
