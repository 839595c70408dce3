/*
 * fsm_test.c - the switch's tables: every cell leads somewhere legal, every state can be
 * reached and left, and states and events are those of the checked model
 * (tests/model/switch.pml lists them in its head).
 */
#include "tests/shim/shim.h"

#include "ipoib_fallback/switch_fsm.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *tx_state(int i)
{
    return fb_tx_state_name((enum fb_tx_state)i);
}

static const char *tx_event(int i)
{
    return fb_tx_event_name((enum fb_tx_event)i);
}

static const char *rx_state(int i)
{
    return fb_rx_state_name((enum fb_rx_state)i);
}

static const char *rx_event(int i)
{
    return fb_rx_event_name((enum fb_rx_event)i);
}

static struct fb_step tx_step(int s, int e)
{
    return fb_tx_step((enum fb_tx_state)s, (enum fb_tx_event)e);
}

static struct fb_step rx_step(int s, int e)
{
    return fb_rx_step((enum fb_rx_state)s, (enum fb_rx_event)e);
}

static void check_table(struct fb_step (*step)(int, int), int states, int events)
{
    unsigned reached = 1, leads_home = 1;

    for (int round = 0; round < states; round++)
        for (int s = 0; s < states; s++)
            for (int e = 0; e < events; e++) {
                struct fb_step to = step(s, e);

                ASSERT(to.next >= -1 && to.next < states);
                if (to.next < 0) {
                    EXPECT_EQ_INT(to.actions, 0);
                    continue;
                }
                if (reached & 1u << s)
                    reached |= 1u << to.next;
                if (leads_home & 1u << to.next)
                    leads_home |= 1u << s;
            }
    EXPECT_EQ_U64(reached, (1u << states) - 1);
    EXPECT_EQ_U64(leads_home, (1u << states) - 1); /* from everywhere back to plain */
}

TEST_CASE(fsm, cells_are_legal)
{
    check_table(tx_step, TX_STATES, TX_EVENTS);
    check_table(rx_step, RX_STATES, RX_EVENTS);
}

TEST_CASE(fsm, actions_go_with_their_steps)
{
    for (int s = 0; s < TX_STATES; s++)
        for (int e = 0; e < TX_EVENTS; e++) {
            struct fb_step to = tx_step(s, e);

            EXPECT(((to.actions & TA_START) != 0) == (to.next == TX_R && s != TX_R));
            EXPECT(((to.actions & TA_STOP) != 0) == (s == TX_R && to.next == TX_L1));
            EXPECT(((to.actions & TA_RESIDUE) != 0) == (to.next == TX_L3 && s != TX_L3));
            EXPECT(((to.actions & TA_PLAIN) != 0) == (to.next == TX_T && s != TX_T));
            /* Nobody leaves a frame half written: only its last byte ends W2 and L2. */
            if ((s == TX_W2 || s == TX_L2) && e != TE_WHOLE)
                EXPECT(to.next == s || to.next < 0);
            /* A request to leave is understood in any state. */
            if (e == TE_LEAVE)
                EXPECT(to.next >= 0);
        }
    for (int s = 0; s < RX_STATES; s++)
        for (int e = 0; e < RX_EVENTS; e++) {
            struct fb_step to = rx_step(s, e);

            EXPECT(((to.actions & RA_ECHO) != 0) == (to.next == RX_r && s != RX_r));
            EXPECT(((to.actions & RA_FREEZE) != 0) == (to.next == RX_sk && s != RX_sk));
            EXPECT(((to.actions & RA_PLAINR) != 0) == (to.next == RX_t && s != RX_t));
            EXPECT(((to.actions & RA_ACK) != 0) == (to.next == RX_gS));
        }
}

/* The words of the model's line " * what: a b c". */
static char *words_of(const char *what)
{
    static char line[300];
    char want[60];
    FILE *f = fopen("tests/model/switch.pml", "r");

    if (!f)
        return NULL;
    snprintf(want, sizeof(want), " * %s:", what);
    while (fgets(line, sizeof(line), f))
        if (strncmp(line, want, strlen(want)) == 0) {
            fclose(f);
            return line + strlen(want);
        }
    fclose(f);
    return NULL;
}

static void compare(const char *what, const char *(*name)(int), int n)
{
    char *words = words_of(what), *save = NULL, *w;
    unsigned found = 0;

    ASSERT(words != NULL);
    for (w = strtok_r(words, " \t\n", &save); w; w = strtok_r(NULL, " \t\n", &save)) {
        int i = 0;

        while (i < n && strcmp(name(i), w) != 0)
            i++;
        if (i == n)
            FAILF("%s: the model has %s, the tables have not", what, w);
        else
            found |= 1u << i;
    }
    for (int i = 0; i < n; i++)
        if (!(found & 1u << i))
            FAILF("%s: the tables have %s, the model has not", what, name(i));
}

TEST_CASE(fsm, names_are_those_of_the_model)
{
    compare("sender states", tx_state, TX_STATES);
    compare("sender events", tx_event, TX_EVENTS);
    compare("receiver states", rx_state, RX_STATES);
    compare("receiver events", rx_event, RX_EVENTS);
}
