/*
 * switch_fsm.c - the two tables of switch_fsm.h. An empty cell is an event that cannot
 * happen in that state: the runner logs an error and stays in it (tx_to, rx_to).
 */
#include "ipoib_fallback/switch_fsm.h"

#define GO(state, acts)     \
    {                       \
        (state) + 1, (acts) \
    }

/* next is stored + 1, so that an absent cell reads as "no such step". */
static const struct fb_step tx_table[TX_STATES][TX_EVENTS] = {
    [TX_T] = {[TE_BOARD] = GO(TX_FX, TA_ANNOUNCE), [TE_LEAVE] = GO(TX_T, 0)},
    [TX_FX] = {[TE_BOARD] = GO(TX_FX, TA_ANNOUNCE), /* a newer attempt replaces the older */
               [TE_ACK] = GO(TX_W1, TA_SWITCH),
               [TE_GIVEUP] = GO(TX_T, TA_PLAIN),
               [TE_LEAVE] = GO(TX_FX, 0)}, /* the next plain byte ends it */
    [TX_W1] = {[TE_GIVEUP] = GO(TX_T, TA_PLAIN),
               [TE_PART] = GO(TX_W2, 0),
               [TE_WHOLE] = GO(TX_R, TA_START),
               [TE_LEAVE] = GO(TX_FX, 0)},
    [TX_W2] = {[TE_PART] = GO(TX_W2, 0),
               [TE_WHOLE] = GO(TX_R, TA_START),
               [TE_LEAVE] = GO(TX_W2, TA_LATER)},
    [TX_R] = {[TE_LEAVE] = GO(TX_L1, TA_STOP)},
    [TX_L1] =
        {[TE_PART] = GO(TX_L2, 0), [TE_WHOLE] = GO(TX_L3, TA_RESIDUE), [TE_LEAVE] = GO(TX_L1, 0)},
    [TX_L2] =
        {[TE_PART] = GO(TX_L2, 0), [TE_WHOLE] = GO(TX_L3, TA_RESIDUE), [TE_LEAVE] = GO(TX_L2, 0)},
    [TX_L3] = {[TE_DRAINED] = GO(TX_T, TA_PLAIN), [TE_LEAVE] = GO(TX_L3, 0)},
};

static const struct fb_step rx_table[RX_STATES][RX_EVENTS] = {
    [RX_t] = {[RE_ANN] = GO(RX_gS, RA_ACK)},
    [RX_gS] = {[RE_ANN] = GO(RX_gS, RA_ACK),
               [RE_NOTC] = GO(RX_t, RA_PLAINR),
               [RE_PART] = GO(RX_f2, 0),
               [RE_WHOLE] = GO(RX_r, RA_ECHO)},
    [RX_f2] = {[RE_PART] = GO(RX_f2, 0), [RE_WHOLE] = GO(RX_r, RA_ECHO)},
    [RX_r] = {[RE_PART] = GO(RX_q2, 0), [RE_WHOLE] = GO(RX_sk, RA_FREEZE)},
    [RX_q2] = {[RE_PART] = GO(RX_q2, 0), [RE_WHOLE] = GO(RX_sk, RA_FREEZE)},
    [RX_sk] = {[RE_CAUGHT] = GO(RX_t, RA_PLAINR)},
};

struct fb_step fb_tx_step(enum fb_tx_state state, enum fb_tx_event event)
{
    struct fb_step s = tx_table[state][event];
    s.next--;
    return s;
}

struct fb_step fb_rx_step(enum fb_rx_state state, enum fb_rx_event event)
{
    struct fb_step s = rx_table[state][event];
    s.next--;
    return s;
}

const char *fb_tx_state_name(enum fb_tx_state s)
{
    static const char *const names[] = {"T", "FX", "W1", "W2", "R", "L1", "L2", "L3"};
    return names[s];
}

const char *fb_tx_event_name(enum fb_tx_event e)
{
    static const char *const names[] = {"BOARD", "ACK",   "GIVEUP", "PART",
                                        "WHOLE", "LEAVE", "DRAINED"};
    return names[e];
}

const char *fb_rx_state_name(enum fb_rx_state s)
{
    static const char *const names[] = {"t", "gS", "f2", "r", "q2", "sk"};
    return names[s];
}

const char *fb_rx_event_name(enum fb_rx_event e)
{
    static const char *const names[] = {"ANN", "NOTC", "PART", "WHOLE", "CAUGHT"};
    return names[e];
}
