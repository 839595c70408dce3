/*
 * switch.pml - the switch as spin checks it: each direction's sender and receiver, one TCP
 * connection with small buffers, one rail that may fail and return at any time.
 *
 * The tables in ipoib_fallback/switch_fsm.c use these names; tests/unit/fsm_test.c compares:
 * sender states: T FX W1 W2 R L1 L2 L3
 * sender events: BOARD ACK GIVEUP PART WHOLE LEAVE DRAINED
 * receiver states: t gS f2 r q2 sk
 * receiver events: ANN NOTC PART WHOLE CAUGHT
 *
 * A frame is two halves in TCP (F1 F2: SWITCH, R1 R2: RESUME), so that it can be cut anywhere; a
 * byte of the application is D with its number and its value, 0 or 1. c is the announced first
 * value of SWITCH. On the rail: ANN, DAT one way, ACK, CR (credit), LR (LEAVE_REQ) the other, each
 * with the epoch that it belongs to. Each epoch is another rail; what is under way when one ends is
 * lost or arrives late, when the next one is in use already.
 *
 * The other rules have models of their own: guard.pml (threads in the kernel when a stream boards),
 * wake.pml (threads asleep on a rail), share.pml (two processes), ends.pml (owed frames and close).
 *
 * Parameters (tests/model/run sets them):
 *   DIRS 1 or 2    directions; with 2 the second application answers the first (request and reply),
 *                  which is where waiting for each other's bytes shows as a deadlock
 *   N    bytes per direction       KT   what TCP's buffer holds, messages
 *   G    ring, bytes               MAXF failures of the rail
 *   MAXE rails after the first     MAXH hand-overs per direction, each at any moment on the rail
 *   KILL the sender may die at any moment: TCP delivers what was sent, then FIN
 *   LOOK the receiving application reads nothing before it has seen everything (FIONREAD, MSG_PEEK; rx_ahead.c),
 *        the sender posts nothing before the ECHO, as on verbs, and leaves only if it must; for one direction,
 *        with G >= N and a TCP buffer that holds everything
 *
 * Checked: every byte once and in order (assertions at each read), F <= rx <= V <= E, no frame of
 * another epoch, the end of the stream only after everything or after a kill; that no run stops
 * before both ends are done (invalid end states); that none goes on for ever (non-progress cycles,
 * there is no progress label); leave_ends under weak fairness (ltl, at the end).
 *
 * Each MUT_* leaves one rule of the protocol out; spin must then find an error:
 *   MUT_C     c is the value of the next application byte, not another one
 *   MUT_END   the receiver goes plain before it has read up to E
 *   MUT_ACK   SWITCH is written without waiting for the ACK
 *   MUT_FREE  the sender frees bytes when they are posted, not when they are consumed
 *   MUT_SKIP  the overlap F..V is not discarded
 *   MUT_GUARD reads of TCP are not capped at S
 *   MUT_LATE  rail data that arrives after RESUME is still taken
 *   MUT_ATT   an ACK of an older attempt is accepted
 *   MUT_OPEN  data is posted although SWITCH is only half written
 *   MUT_W2    a SWITCH that is half written is given up when the rail fails
 *   MUT_EPOCH messages of an earlier epoch are taken for those of this one
 *   MUT_AGAIN a new epoch begins although a half is not plain yet
 *   MUT_FREEZE a hand-over does not set V to what the application has read
 *   MUT_WAITS the residue waits until the receiver has read up to E
 *   MUT_EARLY the ECHO waits until SWITCH has been read
 *   MUT_BEGUN a pinned receiver that only looks does not ask for the leave
 */
#ifndef DIRS
#define DIRS 1
#endif
#ifndef N
#define N 4
#endif
#ifndef KT
#define KT 2
#endif
#ifndef G
#define G 2
#endif
#ifndef MAXF
#define MAXF 2
#endif
#ifndef MAXE
#define MAXE 2
#endif
#ifndef MAXH
#define MAXH 1
#endif

#ifdef MUT_C
#define SWITCH_C v
#else
#define SWITCH_C (1 - v)
#endif
#ifdef MUT_END
#define AT_END 1
#else
#define AT_END (rx[d] == E)
#endif
#ifdef MUT_ACK
#define ANNOUNCED W1
#else
#define ANNOUNCED FX
#endif
#ifdef MUT_FREE
#define FREED F = posted
#else
#define FREED skip
#endif
#ifdef MUT_SKIP
#define OVERLAP 0
#else
#define OVERLAP (V - aF)
#endif
#ifdef MUT_GUARD
#define BELOW_S 1
#else
#define BELOW_S (rx[d] < S)
#endif
#ifdef MUT_LATE
#define TAKES_DATA (rst[d] != t)
#else
#define TAKES_DATA (!frozen && (rst[d] == gS || rst[d] == f2 || rst[d] == r || rst[d] == q2))
#endif
#ifdef MUT_ATT
#define RIGHT_ATT 1
#else
#define RIGHT_ATT (a == att)
#endif
#ifdef MUT_EPOCH
#define OF_NOW(e) 1
#else
#define OF_NOW(e) (e == ep)
#endif
#ifdef MUT_AGAIN
#define PLAIN 1
#else
#define PLAIN QUIET
#endif
#ifdef MUT_FREEZE
#define AT_FREEZE V
#else
#define AT_FREEZE rx[d]
#endif
#ifdef MUT_WAITS
#define MAY_PUSH (rx[d] == E)
#else
#define MAY_PUSH 1
#endif

#ifdef LOOK
#define MAY_POST echoed
#define MAY_LEAVE (!up)
#define MAY_ASK (!up || nfull(back[NOW]))
#else
#define MAY_POST 1
#define MAY_LEAVE 1
#define MAY_ASK 1
#endif

mtype = { D, F1, F2, R1, R2, FIN, ANN, ACK, DAT, CR, LR, ECHO };

chan tcp[2] = [KT] of { mtype, byte, bit };      /* kind, number, value */
chan fore[4] = [2] of { mtype, byte, bit, byte, byte }; /* the rail, along the direction; the epoch last */
chan back[4] = [2] of { mtype, byte, byte };            /* the rail, against it */
#define NOW (d + 2 * (ep & 1)) /* of this rail; the other one is the last rail's, which may deliver late */

bool up = 1;
byte fails = 0;
byte ep = 0; /* the rail that is in use, or was the last one */
byte tx[2], rx[2];
bool killed[2], sdone[2], rdone[2];
bool used[2]; /* this rail has carried the direction already */
#ifdef LOOK
byte framed;  /* 1 + S of the whole SWITCH that is in TCP's queue */
bool seen;    /* all bytes, at once */
#endif

#define T  0
#define FX 1
#define W1 2
#define W2 3
#define R  4
#define L1 5
#define L2 6
#define L3 7
byte sst[2];

#define t  0
#define gS 1
#define f2 2
#define r  3
#define q2 4
#define sk 5
byte rst[2];

#if DIRS == 2
#define MAY_WRITE(d) (d == 0 || tx[1] < rx[0])
#define MAY_READ(d)  (d == 0 || tx[0] == N)
#define QUIET        (sst[0] == T && rst[0] == t && sst[1] == T && rst[1] == t)
#define ALL_DONE     (rdone[0] && sdone[0] && rdone[1] && sdone[1])
#else
#define MAY_WRITE(d) 1
#ifdef LOOK
#define MAY_READ(d)  seen
#else
#define MAY_READ(d)  1
#endif
#define QUIET        (sst[0] == T && rst[0] == t)
#define ALL_DONE     (rdone[0] && sdone[0])
#endif

#define TAKE_ACK(q) \
    :: atomic { sst[d] == FX && q?[ACK, a, e] -> \
           q?ACK, a, e; \
           if :: RIGHT_ATT && OF_NOW(e) -> sst[d] = W1 :: else fi; \
           a = 0; e = 0 }

#define TAKE_CREDIT(q) \
    :: atomic { (sst[d] == R || sst[d] == L1) && q?[CR, a, e] -> \
           q?CR, a, e; \
           if :: OF_NOW(e) && a > F -> F = a :: else fi; \
           assert(F <= tx[d]); a = 0; e = 0 }

#define TAKE_LEAVE_REQ(q) \
    :: atomic { (sst[d] == R || sst[d] == L1) && q?[LR, a, e] -> \
           q?LR, a, e; \
           if \
           :: OF_NOW(e) -> \
                  if :: sst[d] == R && a > F && a <= tx[d] -> F = a :: else fi; \
                  asked = 1; sst[d] = L1 \
           :: else \
           fi; \
           a = 0; e = 0 }

#define TAKE_ECHO(q) \
    :: atomic { (sst[d] == R || sst[d] == L1) && q?[ECHO, a, e] -> \
           q?ECHO, a, e; \
           if :: OF_NOW(e) -> echoed = 1 :: else fi; \
           a = 0; e = 0 }

proctype Sender(byte d)
{
    byte F, posted, S, att, cur, E, a, e;
    bit v;
    bool asked; /* by LEAVE_REQ: an owed frame is written */
#ifdef LOOK
    bool echoed;
#endif

    do
    /* T: the kernel sends. */
    :: atomic { sst[d] == T && tx[d] < N && MAY_WRITE(d) && nfull(tcp[d]) ->
           if :: v = 0 :: v = 1 fi;
           tcp[d]!D, tx[d], v; tx[d]++; v = 0 }
    /* BOARD: S and c are fixed with a byte of value v in hand; ANN may be lost with the rail. */
    :: atomic { sst[d] == T && tx[d] < N && MAY_WRITE(d) && nfull(tcp[d]) && !used[d] && att < 3 &&
                (nfull(fore[NOW]) || !up) ->
           if :: v = 0 :: v = 1 fi;
           S = tx[d]; att++;
           if :: up -> fore[NOW]!ANN, S, SWITCH_C, att, ep :: else fi;
           sst[d] = ANNOUNCED }
    /* ACK */
    TAKE_ACK(back[d])
    TAKE_ACK(back[d + 2])
    /* GIVEUP, at any moment before the first byte of SWITCH: the byte in hand goes plainly. */
    :: atomic { (sst[d] == FX || sst[d] == W1) && nfull(tcp[d]) ->
           tcp[d]!D, tx[d], v; tx[d]++; sst[d] = T; v = 0 }
    /* PART and WHOLE of SWITCH */
    :: atomic { sst[d] == W1 && nfull(tcp[d]) -> tcp[d]!F1, 0, SWITCH_C; sst[d] = W2 }
#ifdef MUT_W2
    :: atomic { sst[d] == W2 && !up && nfull(tcp[d]) ->
           tcp[d]!D, tx[d], v; tx[d]++; sst[d] = T; v = 0 }
#endif
#ifdef MUT_OPEN
    :: atomic { sst[d] == W2 && tx[d] < N && posted <= S && up && nfull(fore[NOW]) ->
           fore[NOW]!DAT, S, 0, 0, ep; posted = S + 1; tx[d]++ }
#endif
    :: atomic { sst[d] == W2 && nfull(tcp[d]) ->
           tcp[d]!F2, ep, 0; sst[d] = R; F = S; posted = S; used[d] = 1; v = 0;
#ifdef LOOK
           framed = S + 1; echoed = 0
#endif
           }
    /* R: into the ring while there is credit, posted later */
    :: atomic { sst[d] == R && tx[d] < N && MAY_WRITE(d) && tx[d] - F < G -> tx[d]++ }
    :: atomic { sst[d] == R && posted < tx[d] && MAY_POST && up && nfull(fore[NOW]) ->
           fore[NOW]!DAT, posted, 0, 0, ep; posted++; FREED }
    /* Credit, also while RESUME is not begun. */
    TAKE_CREDIT(back[d])
    TAKE_CREDIT(back[d + 2])
#ifdef LOOK
    TAKE_ECHO(back[d])
    TAKE_ECHO(back[d + 2])
#endif
    /* LEAVE_REQ(R): the receiver has consumed up to R and reads no more from the ring. */
    TAKE_LEAVE_REQ(back[d])
    TAKE_LEAVE_REQ(back[d + 2])
    /* Messages that come too late mean nothing. */
    :: atomic { sst[d] != R && sst[d] != FX && sst[d] != L1 && nempty(back[d]) -> back[d]?_, _, _ }
    :: atomic { sst[d] != R && sst[d] != FX && sst[d] != L1 && nempty(back[d + 2]) -> back[d + 2]?_, _, _ }
    :: atomic { sst[d] == FX && (back[d]?[CR, a, e] || back[d]?[LR, a, e]) -> back[d]?_, _, _ }
    :: atomic { sst[d] == FX && (back[d + 2]?[CR, a, e] || back[d + 2]?[LR, a, e]) -> back[d + 2]?_, _, _ }
    :: atomic { (sst[d] == R || sst[d] == L1) && back[d]?[ACK, a, e] -> back[d]?_, _, _ }
    :: atomic { (sst[d] == R || sst[d] == L1) && back[d + 2]?[ACK, a, e] -> back[d + 2]?_, _, _ }
    /* LEAVE: planned, the peer's RESUME, failed, closing: at any moment */
    :: atomic { sst[d] == R && MAY_LEAVE -> sst[d] = L1 }
    /* PART of RESUME. With F == E it is owed: it goes with the next byte, FIN, or when asked for. */
    :: atomic { sst[d] == L1 && (F < tx[d] || asked || tx[d] == N || MAY_WRITE(d)) && nfull(tcp[d]) ->
           tcp[d]!R1, F, 0; sst[d] = L2 }
    :: atomic { sst[d] == L2 && nfull(tcp[d]) ->
           E = tx[d]; tcp[d]!R2, E, 0; cur = F; sst[d] = L3 }
    :: atomic { sst[d] == L3 && cur < E && nfull(tcp[d]) && MAY_PUSH -> tcp[d]!D, cur, 0; cur++ }
    /* DRAINED */
    :: atomic { sst[d] == L3 && cur == E ->
           sst[d] = T; F = 0; posted = 0; S = 0; cur = 0; E = 0; asked = 0 }
    :: atomic { sst[d] == T && tx[d] == N && nfull(tcp[d]) ->
           tcp[d]!FIN, 0, 0; sdone[d] = 1; break }
#ifdef KILL
    :: atomic { nfull(tcp[d]) -> killed[d] = 1; tcp[d]!FIN, 0, 0; sdone[d] = 1; break }
#endif
    od
}

#define TAKE_FORE(q) \
    :: atomic { q?[ANN, x, v, o, e] -> \
           q?ANN, x, v, o, e; \
           if \
           :: OF_NOW(e) && (rst[d] == t || rst[d] == gS) && rx[d] <= x && !eof -> \
                  S = x; c = v; att = o; V = x; last = x; rst[d] = gS; \
                  if \
                  :: up && len(back[NOW]) < 2 -> back[NOW]!ACK, att, ep \
                  :: !(up && len(back[NOW]) < 2) \
                  fi \
           :: else \
           fi; \
           x = 0; v = 0; o = 0; e = 0 } \
    :: atomic { q?[DAT, x, v, o, e] -> \
           q?DAT, x, v, o, e; \
           if \
           :: TAKES_DATA && OF_NOW(e) -> assert(x == V); V++; assert(V - rx[d] <= G || rst[d] != r) \
           :: else \
           fi; \
           x = 0; v = 0; o = 0; e = 0 }

proctype Receiver(byte d)
{
    byte S, V, over, E, att, last, x, o, e, aF, froze, cut;
    bit c, v;
    mtype k;
    bool eof, frozen, handed;
#ifdef LOOK
    bool begun; /* SWITCH has been seen, and answered */
#endif

    do
    /* ANN: the guard goes up, or moves to the newer S. */
    TAKE_FORE(fore[d])
    TAKE_FORE(fore[d + 2])
#ifdef LOOK
#ifndef MUT_EARLY
    /* A look beyond the frame, which stays where it is. */
    :: atomic { rst[d] == gS && !begun && framed == S + 1 && MAY_ASK ->
           begun = 1; if :: up -> back[NOW]!ECHO, 0, ep :: !up fi }
#endif
    /* Pinned meanwhile: what is in the ring counts as never arrived, the sender must leave. */
    :: atomic { rst[d] == gS && begun && !frozen && froze < MAXH && MAY_ASK ->
           froze++; frozen = 1; V = S;
#ifndef MUT_BEGUN
           if :: up -> back[NOW]!LR, S, ep :: !up fi
#endif
           }
    /* Everything is in sight: in TCP, or in TCP and in the ring. */
    :: atomic { !seen && tx[d] == N && (sst[d] == T || (rst[d] == gS && begun && V == N)) -> seen = 1 }
#endif
    /* t, and gS below S: the kernel receives. */
    :: atomic { (rst[d] == t || (rst[d] == gS && BELOW_S)) && MAY_READ(d) && !eof && nempty(tcp[d]) ->
           tcp[d]?k, x, v;
           if
           :: k == FIN ->
                  assert((rx[d] == tx[d] && (killed[d] || rx[d] == N)) || (killed[d] && rx[d] < cut));
                  eof = 1; rdone[d] = 1; break
           :: else -> assert(k == D && x == rx[d]); rx[d]++
           fi;
           k = 0; x = 0; v = 0 }
    /* gS at S: one byte decides. NOTC, or PART of SWITCH. */
    :: atomic { rst[d] == gS && rx[d] == S && nempty(tcp[d]) && MAY_READ(d) ->
           tcp[d]?k, x, v;
           if
           :: k == FIN -> assert(rx[d] == tx[d]); rdone[d] = 1; break
           :: k != FIN && v == c -> assert(k == F1); rst[d] = f2
           :: else -> assert(k == D && x == rx[d]); rx[d]++; rst[d] = t; V = 0; S = 0; last = 0
           fi;
           k = 0; x = 0; v = 0 }
    /* WHOLE; FIN here: nothing beyond S was accepted. */
    :: atomic { rst[d] == f2 && nempty(tcp[d]) ->
           tcp[d]?k, x, v;
           if
           :: k == FIN -> assert(killed[d] && rx[d] == tx[d]); rdone[d] = 1; break
           :: else ->
                  assert(k == F2 && x == ep); rst[d] = r;
#ifdef LOOK
                  framed = 0;
                  if :: !begun && up && nfull(back[NOW]) -> back[NOW]!ECHO, 0, ep :: else fi
#endif
           fi;
           k = 0; x = 0; v = 0 }
    /* The application reads the ring, and credit goes back. */
    :: atomic { (((rst[d] == r || rst[d] == q2) && !frozen) || rst[d] == sk) && rx[d] < V && MAY_READ(d) -> rx[d]++ }
    :: atomic { (rst[d] == r || rst[d] == q2) && !frozen && rx[d] > last && up && nfull(back[NOW]) ->
           back[NOW]!CR, rx[d], ep; last = rx[d] }
    /* Hand-over: V is R, the rest of the ring counts as never arrived. LEAVE_REQ may be lost. */
    :: atomic { (rst[d] == r || rst[d] == q2) && !frozen && froze < MAXH && MAY_ASK ->
           froze++; frozen = 1; V = AT_FREEZE;
           if
           :: up && nfull(back[NOW]) -> back[NOW]!LR, rx[d], ep
           :: !up || full(back[NOW])
           fi }
    /* RESUME, PART then WHOLE. FIN before it: ECONNRESET after V. */
    :: atomic { rst[d] == r && nempty(tcp[d]) ->
           tcp[d]?k, x, v;
           if
           :: k == FIN -> assert(killed[d]); rdone[d] = 1; break
           :: else -> assert(k == R1 && x <= rx[d]); aF = x; rst[d] = q2
           fi;
           k = 0; x = 0; v = 0 }
    :: atomic { rst[d] == q2 && nempty(tcp[d]) ->
           tcp[d]?k, x, v;
           if
           :: k == FIN -> assert(killed[d]); rdone[d] = 1; break
           :: else ->
                  assert(k == R2); E = x; assert(V <= E); over = OVERLAP; rst[d] = sk;
                  if :: frozen -> V = rx[d]; handed = 1; frozen = 0 :: else fi
           fi;
           k = 0; x = 0; v = 0 }
    /* sk: the overlap is discarded, the ring read up to V, then TCP up to E. */
    :: atomic { rst[d] == sk && over > 0 && nempty(tcp[d]) ->
           tcp[d]?k, x, v;
           if
           :: k == FIN -> assert(killed[d]); rdone[d] = 1; break
           :: else -> assert(k == D && x == V - over); over--
           fi;
           k = 0; x = 0; v = 0 }
    :: atomic { rst[d] == sk && over == 0 && rx[d] == V && rx[d] < E && !handed && nempty(tcp[d]) && MAY_READ(d) ->
           tcp[d]?k, x, v;
           if
           :: k == FIN -> assert(killed[d] && rx[d] < tx[d] + 1); rdone[d] = 1; break
           :: else -> assert(k == D && x == rx[d]); rx[d]++; V++
           fi;
           k = 0; x = 0; v = 0 }
    /* CAUGHT. After a hand-over at once: another process may read from here on, and if the sender dies with
     * part of the residue, that one gets a clean end before `cut` (a stated limit: nobody can tell it). */
    :: atomic { rst[d] == sk && over == 0 && rx[d] == V && (AT_END || handed) ->
           if :: handed -> cut = E :: else -> cut = 0 fi;
           rst[d] = t; V = 0; S = 0; E = 0; last = 0; aF = 0; att = 0; handed = 0;
#ifdef LOOK
           begun = 0
#endif
           }
    od
}

#define LOSSY(n) (!up || n / 2 != (ep & 1))
#define LOSES(n) \
    :: atomic { LOSSY(n) && nempty(fore[n]) -> do :: nempty(fore[n]) -> fore[n]?_, _, _, _, _ :: empty(fore[n]) -> break od } \
    :: atomic { LOSSY(n) && nempty(back[n]) -> do :: nempty(back[n]) -> back[n]?_, _, _ :: empty(back[n]) -> break od }

/* The rail fails, and may lose what is under way. When both halves of all directions are plain the next
 * one comes. (That an end gives a whole rail back while the other end boards is such a failure.) */
proctype Rail()
{
    do
    :: atomic { up && fails < MAXF -> up = 0; fails++ }
    LOSES(0)
    LOSES(2)
#if DIRS == 2
    LOSES(1)
    LOSES(3)
#endif
    :: atomic { (!up || used[0] || used[1]) && PLAIN && ep < MAXE -> up = 1; ep++; used[0] = 0; used[1] = 0 }
    :: atomic { ALL_DONE -> break }
    od
}

init
{
    atomic {
        run Sender(0); run Receiver(0);
#if DIRS == 2
        run Sender(1); run Receiver(1);
#endif
        run Rail()
    }
}

/* A leave that is not owed ends. (The receiver of this model reads on: TCP needs no more.) */
ltl leave_ends { [] (sst[0] == L2 || sst[0] == L3 -> <> (sst[0] == T || killed[0])) }
