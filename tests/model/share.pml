/*
 * share.pml - one connection, two or three processes: the owner, whose library may put it on a rail,
 * and forked children that may use what they inherited, until they end. heir.c and heir_child.c
 * (FOREIGN and BUSY in `lent`, asking, links), fb_pin and end_settled (end.c), rx_freeze and take_resume
 * (rx_frame.c), the comparison with the kernel's counters (rx_guard, tx_may_board).
 *
 * The peer sends bytes 0, 1, ... and boards when the owner has a rail (SW), comes back with RES(F) and
 * what follows from F; it receives bytes, which count from 0 as well, and one RES for each time that the
 * owner's sending half was on the rail. Announcement, attempts and failing rails are switch.pml's.
 *
 * Parameters (tests/model/run sets them):
 *   NC   children, 1 or 2          KILL  the owner may be killed at any moment
 *   N    bytes to the processes    EP    rails
 *
 * Checked: whoever reads the kernel's socket reads the next byte of the stream, never a frame; the peer
 * reads bytes where bytes are due and a frame where a frame is; the owner has no rail while a child
 * uses the socket; no run stops before all have ended (invalid end states); asked_is_answered (ltl, weak
 * fairness). A child that is refused, or finds BUSY and its owner dead, resets the connection.
 *
 * Each MUT_* leaves one rule out:
 *   MUT_BUSY    the child does not look at BUSY
 *   MUT_FOREIGN the owner does not look at FOREIGN
 *   MUT_ATOMIC  both look first, then set their flag
 *   MUT_RX      the answer does not wait for the receiving half
 *   MUT_TX      nor (alone) for the sending half
 *   MUT_OVER    it does not wait until the overlap is discarded
 *   MUT_FREEZE  V is not set to what was read
 *   MUT_PIN     the stream is not pinned by being asked for
 *   MUT_HELD    the end of one link gives back what another child holds
 *   MUT_BYPASS  the owner does not compare its counters with the kernel's
 *   MUT_DEAD    a child whose owner is dead uses a busy stream (with KILL)
 */
#ifndef NC
#define NC 1
#endif
#ifndef N
#define N 3
#endif
#ifndef EP
#define EP 1
#endif

mtype = { D, SW, RES };

chan down = [2] of { mtype, byte }; /* TCP to the processes */
chan up = [2] of { mtype, byte };   /* and from them */
chan ask = [2] of { byte };
chan answer[2] = [1] of { bit };

bool busy, foreign;          /* lent */
bool linked[2], waits[2];
bool rail, dead, reset, fin; /* the owner's rail; the owner; the connection; the peer has sent all */
bool pinned, lentpin, frozen;
byte next;                   /* of all holders: the stream's next byte */
bool moved_rx, moved_tx;     /* the kernel's counters are not the owner's any more */
byte arrived;                /* in the ring, position */
bool leave;                  /* LEAVE_REQ */

#define t  0
#define gS 1
#define r  2
#define sk 3
byte rx; /* the owner's receiving half */

#define T 0
#define R 1
byte tx; /* its sending half */
byte peer; /* the peer's sending half */

#ifdef MUT_RX
#define RX_SETTLED 1
#else
#ifdef MUT_OVER
#define RX_SETTLED (rx == t || rx == sk)
#else
#define RX_SETTLED (rx == t)
#endif
#endif
#ifdef MUT_TX
#define TX_SETTLED 1
#else
#define TX_SETTLED (tx == T)
#endif
#ifdef MUT_BYPASS
#define COUNTED(moved) 1
#else
#define COUNTED(moved) (!moved)
#endif
#ifdef MUT_FREEZE
#define AT_FREEZE arrived
#else
#define AT_FREEZE next
#endif
#ifdef MUT_HELD
#define HELD_BY_ANOTHER 0
#else
#define HELD_BY_ANOTHER (linked[0] || linked[1])
#endif
#ifdef MUT_PIN
#define PINS skip
#else
#define PINS if :: !pinned -> pinned = 1; lentpin = 1 :: else fi
#endif

proctype Owner()
{
    byte n, V, F, over, rails, who, mine; /* mine: bytes that the owner's calls have read */
    mtype k;
    bool saw, handed, rxon, txon; /* this rail has had its turn */

    do
    :: reset || (fin && len(down) == 0 && rx == t && tx == T && !linked[0] && !linked[1] && len(ask) == 0) -> break
#ifdef KILL
    :: atomic { !dead -> dead = 1; rail = 0; break }
#endif
    /* link_up: heir_take */
    :: atomic { !rail && !busy && !pinned && rx == t && tx == T && rails < EP && !fin ->
           rails++;
#ifdef MUT_ATOMIC
           saw = foreign }
           busy = 1;
#else
           saw = foreign; busy = 1 }
#endif
#ifdef MUT_FOREIGN
           saw = 0;
#endif
           if
           :: saw -> busy = 0
           :: else -> atomic { rail = 1; arrived = next; V = 0; F = 0; rxon = 0; txon = 0; leave = 0 }
           fi;
           saw = 0
    /* rx_guard; the peer may write SW. */
    :: atomic { rail && !pinned && rx == t && !rxon && COUNTED(moved_rx) && peer == T && !fin -> rx = gS }
    /* tx_board: SWITCH is the peer's to read, too. */
    :: atomic { rail && !pinned && tx == T && !txon && COUNTED(moved_tx) && len(up) < 2 -> tx = R; txon = 1; up!SW, 0 }
    /* leaving: asked, planned */
    :: atomic { tx == R && len(up) < 2 -> tx = T; up!RES, 0 }
    /* Its application reads. */
    :: atomic { (rx == t || rx == gS) && down?[D, n] ->
           down?D, n; assert(n == next); next++; mine++; n = 0;
           if :: rx == gS && peer == T -> rx = t :: else fi } /* given up, or not at S yet: asked again */
    :: atomic { rx == gS && peer == T && len(down) == 0 && (fin || pinned || !rail) -> rx = t }
    :: atomic { rx == gS && down?[SW, n] -> down?SW, n; assert(n == mine); rx = r; rxon = 1; arrived = next; n = 0 }
    :: atomic { rx == r && !frozen && next < arrived -> next++; mine++ }
    :: atomic { rx == r && down?[RES, n] ->
           down?RES, F;
           if :: !frozen -> V = arrived :: else -> handed = 1 fi;
           over = V - F; rx = sk; frozen = 0; leave = 0 }
    :: atomic { rx == sk && over > 0 && down?[D, n] ->
           down?D, n; assert(n == V - over); over--; n = 0 }
    :: atomic { rx == sk && over == 0 && next < V && !handed -> next++; mine++ }
    :: atomic { rx == sk && over == 0 && (next == V || handed) -> rx = t; V = 0; F = 0; handed = 0 }
    /* asked(): pinned for as long as the child may use it, and left */
    :: atomic { len(ask) > 0 && !saw -> saw = 1; PINS }
    :: atomic { saw && rx == r && !frozen -> frozen = 1; V = AT_FREEZE; leave = 1 }
    :: atomic { saw && RX_SETTLED && TX_SETTLED -> saw = 0; ask?who; answer[who]!1; who = 0 }
    /* Bytes before an announced switch, which its application does not read: given up after 5 s. */
    :: atomic { saw && rx == gS && len(down) > 0 -> saw = 0; ask?who; answer[who]!0; who = 0 }
    /* release_job: both halves are plain, the rail has had its turn */
    :: atomic { rail && rx == t && tx == T && (pinned || rails > 0) -> rail = 0; busy = 0 }
    od
}

/* The end of a link, on the owner's progress thread. */
inline link_ends(me)
{
    atomic {
        linked[me] = 0;
        if
        :: foreign && !HELD_BY_ANOTHER && !dead ->
               foreign = 0;
               if :: lentpin -> pinned = 0; lentpin = 0 :: else fi
        :: else
        fi
    }
}

proctype Child(byte me)
{
    byte n, turns;
    mtype k;
    bool saw, yes;

    if
    :: goto over /* it execs, or ends, and never uses it */
    :: skip
    fi;
    /* lend() */
#ifdef MUT_ATOMIC
    saw = busy;
    foreign = 1;
#else
    atomic { saw = busy; foreign = 1 }
#endif
#ifdef MUT_BUSY
    saw = 0;
#endif
    if
    :: saw ->
           if
           :: atomic { !dead -> waits[me] = 1; ask!me }
              if
              :: atomic { answer[me]?yes -> waits[me] = 0 }
              :: atomic { dead -> waits[me] = 0; yes = !busy }
              :: atomic { reset -> waits[me] = 0 }
              fi
           :: atomic { dead -> yes = !busy }
           fi;
#ifdef MUT_DEAD
           yes = yes || dead;
#endif
           if
           :: !yes -> reset = 1; goto over
           :: else
           fi
    :: else
    fi;
    do
    :: atomic { turns < 2 && len(down) > 0 && !reset ->
           assert(!rail || (rx == t && tx == T)); /* attached, perhaps, but carrying nothing */
           down?k, n; assert(k == D && n == next); next++; moved_rx = 1; turns++; n = 0; k = 0 }
    :: atomic { turns < 2 && len(up) < 2 && !reset -> up!D, 0; moved_tx = 1; turns++ }
    :: atomic { turns == 2 || fin || reset -> break }
    od;
over:
    link_ends(me)
}

proctype Peer()
{
    byte tx_, F, cur, n;
    mtype k;
    bool on;

    do
    :: reset -> break
    :: dead && !linked[0] && !linked[1] -> break
    :: atomic { peer == T && cur == tx_ && tx_ < N && len(down) < 2 -> down!D, tx_; tx_++; cur = tx_ }
    :: atomic { peer == T && cur == tx_ && rx == gS && rail && !leave && len(down) < 2 && next + len(down) == tx_ ->
           down!SW, tx_; peer = R }
    :: atomic { peer == R && rx == r && !frozen && tx_ < N && rail -> assert(arrived == tx_); arrived++; tx_++ }
    /* LEAVE, with the credit that the ring shows */
    :: atomic { peer == R && rx != gS && len(down) < 2 ->
           F = next; if :: F > tx_ -> F = tx_ :: else fi;
           down!RES, F; cur = F; peer = T }
    :: atomic { peer == T && cur < tx_ && len(down) < 2 -> down!D, cur; cur++ }
    :: atomic { len(up) > 0 ->
           up?k, n;
           if
           :: k == SW -> assert(!on); on = 1
           :: k == RES -> assert(on); on = 0
           :: k == D -> assert(!on) /* a byte where a frame is due */
           fi;
           k = 0 }
    :: atomic { peer == T && cur == tx_ && tx_ == N && !fin -> fin = 1 }
    :: atomic { fin && len(up) == 0 && !linked[0] && !linked[1] && (dead || (rx == t && tx == T)) -> break }
    od
}

init
{
    atomic {
        linked[0] = 1;
#if NC == 2
        linked[1] = 1; run Child(1);
#endif
        run Owner(); run Child(0); run Peer()
    }
}

ltl asked_is_answered { [] (waits[0] -> <> !waits[0]) }
