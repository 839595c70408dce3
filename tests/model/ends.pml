/*
 * ends.pml - owed frames, CLOSED and resets. End A writes N bytes and then closes, dies, or hands its
 * socket over; end B reads, may end its own direction at any moment (shutdown), writes nothing. B's
 * direction is on the rail and all consumed, so that its way back is one frame, which is owed. A's
 * direction is plain, or comes back from the rail with its close (RESUME with CLOSED). tx_leave and
 * tx_push (tx_leave.c), release_job (link.c), fb_close and end_settled (end.c), linger.c, take_resume
 * (rx_frame.c).
 *
 * TCP from A to B: what A's kernel still holds (sent), which a reset takes away, and what B's has (came).
 * A frame that finds A's socket closed draws that reset, and so does closing with something unread.
 *
 * Parameters (tests/model/run sets them):
 *   N     bytes that A writes        KILL  A may die at any moment; its kernel goes on
 *   HAND  A hands over: it needs B's frame out of its socket
 *   CUT   the rail may fail at any moment
 * Time is not here: A's lingering may reach its limit (a minute) only if B has seen CLOSED; the 5 s of a
 * hand-over pass only when nobody can be asked any more. With KILL, B ends its direction only after
 * A's end: before, its frame would draw the reset (a stated limit; nobody can tell B that A is dead).
 * With HAND, B waits for A.
 *
 * Checked: B's application reads all that A wrote, then the end, and no reset before it; who has been
 * handed the socket finds no frame in it; a hand-over is given up only when the rail has failed; no run
 * stops before both ends are done (invalid end states); hand_over_ends (ltl, weak fairness, with HAND).
 *
 * Each MUT_* leaves one rule out:
 *   MUT_OWED    RESUME is written although neither byte nor FIN follows and nobody has asked
 *   MUT_CLOSED  RESUME is written before FIN to a peer that has told CLOSED
 *   MUT_LINGER  the socket is closed as soon as the application closes it
 *   MUT_ASK     LEAVE_REQ finds the frame owed, and it stays so
 *   MUT_KEEP    the rail is given back although a frame is owed
 *   MUT_GIVEUP  a hand-over that nobody answers is taken for done (with CUT)
 */
#ifndef N
#define N 2
#endif

#if defined(HAND) || defined(KILL)
#define MAY_SHUT 0
#else
#define MAY_SHUT 1
#endif

mtype = { D, RES, FIN };

chan sent = [4] of { mtype };
chan came = [4] of { mtype };
chan toA = [2] of { mtype }; /* B's frame and FIN, not read by A */
bool open = 1, rst;
bool up = 1, kept = 1; /* the rail works; B holds its end of it */
bool asked;            /* LEAVE_REQ is under way */
bool handed, gave_up, adone, bdone;
bool peer_closed; /* B has seen CLOSED */
byte wrote;

#define R  0 /* B's sender */
#define L1 1
#define T  2
byte bs;

#define DISCARD(q) do :: len(q) > 0 -> q?_ :: len(q) == 0 -> break od

inline reset() { rst = 1; DISCARD(sent) }

#ifdef MUT_OWED
#define WRITES_OWED 1
#else
#define WRITES_OWED 0
#endif
#ifdef MUT_CLOSED
#define TO_CLOSED 1
#else
#define TO_CLOSED (!peer_closed)
#endif
#ifdef MUT_KEEP
#define GIVES_BACK 1
#else
#define GIVES_BACK (!up)
#endif

/* The process is gone, or its last descriptor: the kernel's close. */
inline close()
{
    open = 0;
    if :: len(toA) > 0 && toA?[RES] -> reset() :: else fi;
    DISCARD(toA)
}

proctype A()
{
    mtype k;
    bool told, resumed, end;

    do
    :: atomic { wrote < N && len(sent) < 4 -> wrote++; if :: rst -> skip :: else -> sent!D fi }
    :: wrote == N -> break
#ifdef KILL
    :: atomic { up = 0; sent!FIN; close(); adone = 1; goto over }
#endif
    od;
#ifdef HAND
    atomic { if :: up && kept -> asked = 1 :: else fi }
    if
    :: atomic { len(toA) > 0 -> toA?k; assert(k == RES); handed = 1 }
    :: atomic { bs == T && len(toA) == 0 -> assert(0) }
    :: atomic { !kept && len(toA) == 0 && bs == L1 -> assert(!up); gave_up = 1 }
    fi;
    /* Who is refused resets the connection, and reads nothing. */
#ifdef MUT_GIVEUP
    handed = 1;
#endif
    if
    :: handed -> /* another process has the socket: reads to the end, then closes */
           atomic { len(sent) < 4 -> sent!FIN }
           atomic { len(toA) > 0 -> toA?k; assert(k == FIN) }
    :: else
    fi;
    adone = 1;
    goto over;
#endif
    /* fb_close */
    if
    :: atomic { len(sent) < 3 -> sent!RES; told = 1 } /* this direction was on the rail, too */
    :: skip
    fi;
    atomic { len(sent) < 4 -> if :: rst -> skip :: else -> sent!FIN fi }
#ifndef MUT_LINGER
    do
    :: atomic { len(toA) > 0 -> toA?k; if :: k == RES -> resumed = 1 :: k == FIN -> end = 1 fi; k = 0 }
    :: atomic { len(sent) == 0 && (told || resumed) -> break }
    :: end -> break
    :: atomic { told && peer_closed && len(toA) == 0 -> up = 0; close(); adone = 1; goto over } /* the limit */
#ifdef KILL
    :: break
#endif
    od;
#endif
    atomic { up = 0; close(); adone = 1 }
over:
    skip
}

/* A's kernel, which goes on without A. */
proctype Net()
{
    mtype k;

end:
    do
    :: atomic { len(sent) > 0 && len(came) < 4 -> sent?k; came!k; k = 0 }
    od
}

/* B's library writes its frame. */
inline frame()
{
    if
    :: open -> toA!RES
    :: else -> reset()
    fi
}

proctype B()
{
    byte got;
    mtype k;
    bool shut, eof;

    do
    /* The application reads; frames are taken out. */
    :: atomic { !eof && len(came) > 0 ->
           came?k;
           if
           :: k == D -> got++
           :: k == RES -> peer_closed = 1
           :: k == FIN -> assert(got == wrote); eof = 1
           fi;
           k = 0 }
    :: atomic { !eof && len(came) == 0 && rst ->
           assert(0) } /* ECONNRESET before the end, and bytes that were lost */
    /* LEAVE: CLOSED was seen, the rail has failed, it was planned */
    :: atomic { bs == R && (peer_closed || !up || kept) -> bs = L1; if :: WRITES_OWED -> frame(); bs = T :: else fi }
    :: atomic { asked && kept && up && bs != T ->
           asked = 0;
           bs = L1;
#ifndef MUT_ASK
           frame(); bs = T
#endif
           }
    /* release_job: not while a frame is owed, unless the rail is dead. */
    :: atomic { kept && (bs == T || (bs == L1 && GIVES_BACK)) -> kept = 0 }
    /* shutdown or close: the frame goes before FIN, but not to a peer that has closed. */
    :: atomic { !shut && (eof || MAY_SHUT) ->
           if
           :: bs != T && TO_CLOSED -> frame()
           :: else
           fi;
           bs = T; shut = 1;
           if :: open && !rst -> toA!FIN :: else fi }
    :: atomic { eof && shut -> bdone = 1; break }
    :: atomic { gave_up && !handed -> bdone = 1; break }
    od
}

#ifdef CUT
proctype Rail()
{
    up = 0
}
#endif

init
{
    atomic {
        run A(); run Net(); run B()
#ifdef CUT
        ; run Rail()
#endif
    }
}

ltl hand_over_ends { <> (handed || gave_up) }
