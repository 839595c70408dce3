/*
 * switch_fsm.h - the switch as two tables: (state, event) -> (state, actions), one
 * for the sending half of a direction and one for the receiving half. Pure: no
 * I/O, no clock, no memory. The runner (tx.c, rx.c) performs the actions; the
 * simulation and the Promela model (tests/model/switch.pml) use the same names.
 *
 * Sender      T   plain: the kernel sends           R   on the rail
 *             FX  announced, waiting for the ACK    L1  left, RESUME not begun (owed, or no room)
 *             W1  acknowledged, SWITCH not begun    L2  RESUME partly in TCP
 *             W2  SWITCH partly in TCP              L3  residue F..E going into TCP
 * Receiver    t   plain: the kernel receives        r   reading the ring
 *             gS  reads are capped at S             q2  RESUME partly read
 *             f2  SWITCH partly read                sk  discarding the overlap, up to E
 */
#ifndef FB_SWITCH_FSM_H
#define FB_SWITCH_FSM_H

#include <stdint.h>

enum fb_tx_state { TX_T, TX_FX, TX_W1, TX_W2, TX_R, TX_L1, TX_L2, TX_L3, TX_STATES };
enum fb_tx_event {
    TE_BOARD,   /* a send with a byte in hand may try */
    TE_ACK,     /* the ACK of this very attempt */
    TE_GIVEUP,  /* no ACK, or no room: a plain byte other than c was written instead */
    TE_PART,    /* some bytes of the frame are in TCP */
    TE_WHOLE,   /* all of them */
    TE_LEAVE,   /* plan, request, failure, end of stream */
    TE_DRAINED, /* the kernel has taken everything up to E */
    TX_EVENTS
};
enum {
    TA_ANNOUNCE = 1, /* fix S = tx and c, send ANN */
    TA_SWITCH = 2,   /* the frame to write is SWITCH */
    TA_START = 4,    /* the rail's sender half starts at S */
    TA_STOP = 8,     /* post no more; E = tx, F = highest credit; the frame to write is RESUME */
    TA_LATER = 16,   /* leave once the frame is whole */
    TA_RESIDUE = 32, /* write F..E */
    TA_PLAIN = 64,   /* the half is plain again */
};

enum fb_rx_state { RX_t, RX_gS, RX_f2, RX_r, RX_q2, RX_sk, RX_STATES };
enum fb_rx_event {
    RE_ANN,    /* announced, and the guard holds */
    RE_NOTC,   /* the byte at S is not c: application data */
    RE_PART,   /* part of a frame was read */
    RE_WHOLE,  /* a whole, valid frame */
    RE_CAUGHT, /* rx == E and the overlap is discarded */
    RX_EVENTS
};
enum {
    RA_ACK = 1,    /* tell the sender that S and c are recorded */
    RA_ECHO = 2,   /* send X back over the rail; the receiver half starts at S */
    RA_FREEZE = 4, /* V is final; skip V - F bytes of TCP */
    RA_PLAINR = 8, /* the half is plain again */
};

struct fb_step {
    int8_t next; /* -1: this event cannot happen in this state: a protocol error */
    uint8_t actions;
};

struct fb_step fb_tx_step(enum fb_tx_state, enum fb_tx_event);
struct fb_step fb_rx_step(enum fb_rx_state, enum fb_rx_event);

const char *fb_tx_state_name(enum fb_tx_state);
const char *fb_tx_event_name(enum fb_tx_event);
const char *fb_rx_state_name(enum fb_rx_state);
const char *fb_rx_event_name(enum fb_rx_event);

#endif
