/*
 * proto.h - what travels: control messages on the rail, frames on the anchor.
 *
 * On the rail, struct rsk_msg by type. The HELLO exchange proves that both ends share the TCP
 * stream before anything else happens:
 *   HELLO     connecting end: data = nonce0, a = its checkpoints of the direction up (a mask), b =
 *             of down, word = features
 *   HELLO_ACK accepting end: data = nonce1 and its proof, a and b = the chosen checkpoints
 *   PROVED    connecting end: data = its proof. Now both ends may announce.
 *   REFUSED   reason: not now, or not at all; the rail ends.
 * Then per direction, sender S and receiver R:
 *   ANN       S: att, a = S, b = c. Read no byte beyond S without looking.
 *   ACK       R: att, a = R, its rx, and b = 1.   NAK  R: att, reason.
 *   ECHO      R: data = X of the SWITCH frame: it came through this TCP stream.
 *   LEAVE_REQ R: a = R, its rx: leave, please; and write the frame, if it is owed.
 *   OWED      S: a = F: left, everything was consumed, nothing is written yet.
 *   LARGER    S: LEAVE_REQ, and S leaves too: R should have a larger ring next.
 *   BYE       either: the rail ends, because both directions have left, or at once for `reason`.
 *
 * On the anchor, one 64-byte frame type for each change of track:
 *   SWITCH  first byte c as announced; S; the receiver's nonce; X; tag
 *   RESUME  F, E, ack = own rx of the other direction; the receiver's nonce; tag
 * The tag is over the frame's first 48 bytes, keyed by both nonces.
 */
#ifndef FB_PROTO_H
#define FB_PROTO_H

#include <stdint.h>

#define FB_PROTO_VERSION 1
#define FB_KEYED \
    1u /* of the features: the proof needs the site key. Unknown ones of the peer are ignored */

enum fb_msg_type {
    FM_HELLO = 1,
    FM_HELLO_ACK,
    FM_PROVED,
    FM_REFUSED,
    FM_ANN,
    FM_ACK,
    FM_NAK,
    FM_ECHO,
    FM_LEAVE_REQ,
    FM_OWED,
    FM_BYE,
    FM_LARGER,
};

enum { FF_SWITCH = 1, FF_RESUME = 2 };
enum {
    FF_FIN = 1,    /* RESUME: this direction ends after E */
    FF_CLOSED = 2, /* the sender's application has closed; write no frame to it on your own */
};

#define FB_RESUME_C 0x52u
#define FB_FRAME    64u

struct fb_frame {
    uint8_t c;
    uint8_t type, version, flags;
    uint32_t epoch;
    union {
        struct {
            uint64_t S;
            uint8_t X[16];
        } sw;
        struct {
            uint64_t F, E, ack;
        } re;
    } u;
    uint8_t N[16];
    uint8_t tag[16];
};
_Static_assert(sizeof(struct fb_frame) == FB_FRAME, "frame size");
#define FB_FRAME_TAGGED 48u

#endif
