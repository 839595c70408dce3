/*
 * guard.pml - threads that are in the kernel when a stream boards: the receiving end of one
 * direction, thread by thread. fb_rx_enter and fb_rx_leave (fb.h, stream.c), rx_guard and rx_switch
 * (rx_frame.c), rx_feed (rx.c), the sleepers' records (sleepers.c) and poll around them.
 *
 * Each step is one access to what threads share, in the order in which the sources do it; they are
 * sequentially consistent there and here. The sender announces, writes SWITCH (F1 F2) if it is
 * acknowledged and a plain byte if not, sends on the rail once ECHO has come, and comes back (RE) when
 * the ring is empty. What boards is switch.pml's; here it is who may be where meanwhile.
 *
 * Parameters (tests/model/run sets them):
 *   NR   threads in blocking receives, each of 1 to 4 messages at once
 *   NP   threads (0 or 1) in poll
 *   ODD  the last receiver's form is one that a frame does not wake (MSG_WAITALL: three messages or none)
 *   N    bytes                     ATT  attempts to board
 *   SHM  what follows SWITCH may be in the ring before SWITCH is taken out of TCP
 * Not here: a RESUME behind a SWITCH in one receive, with bytes of the ring that come again (rx_feed; the
 * sender of this model comes back when the ring is empty); which thread's bytes come first.
 *
 * Checked: no frame reaches the application, every byte does, once; an honest stream is never taken for
 * bypassed (the kernel's count against ours); when SWITCH is taken out of TCP no thread sleeps in the
 * kernel for it; no run stops before the stream's end (invalid end states).
 *
 * Each MUT_* leaves one rule out:
 *   MUT_ENTER   a receiver looks at the gate, then counts itself in
 *   MUT_RAISE   the guard looks at the count, then raises the gate
 *   MUT_LEAVE   a receive that is over does not look at the gate again
 *   MUT_COUNT   it is counted out before its bytes are counted
 *   MUT_TWO     two receives under way do not refuse the guard
 *   MUT_ONE     neither does one with a sleeper in poll
 *   MUT_FORM    neither does one of a form that the frame does not wake
 *   MUT_FLIGHT  behind the guard others read before the receive under way is back
 *   MUT_PUBLISH poll tests for rails, then publishes that it sleeps
 *   MUT_SEE     the frame is taken although a sleeper has not been awake since the guard
 *   MUT_PEEK    the frame is taken although a thread sleeps in recv(MSG_PEEK)
 */
#ifndef NR
#define NR 2
#endif
#ifndef NP
#define NP 1
#endif
#ifndef N
#define N 3
#endif
#ifndef ATT
#define ATT 2
#endif

mtype = { D, F1, F2, RE };

chan tcp = [4] of { mtype, byte };
chan ann = [1] of { byte, byte }; /* S, attempt */
chan ans = [1] of { bit, byte };  /* ACK or not, attempt */
bool echo, fin;
byte tail, head; /* of the ring */

bool gate, lock, got[N + 1];
byte rx_in, odd, peekers, rx, krx, kout, S, att;
bool told[3]; /* conn_wake: who is about to wait for it lowers his own, with the lock held */
byte seq, must_see;
bool must;
byte in_recv, in_peek, in_poll; /* asleep in the kernel, for the assertion */

#define t  0
#define gS 1
#define f2 2
#define r  3
byte state;

#define LOCK   atomic { !lock -> lock = 1 }
#define UNLOCK lock = 0
#define THERE  (len(tcp) > 0 || fin)

#ifdef MUT_SEE
#define SLEEPERS_GONE 1
#else
#define SLEEPERS_GONE (!must || seq != must_see)
#endif
#ifdef MUT_PEEK
#define PEEKERS_GONE 1
#else
#define PEEKERS_GONE (peekers == 0)
#endif
#ifdef MUT_FLIGHT
#define NONE_IN_FLIGHT 1
#else
#define NONE_IN_FLIGHT (rx_in == 0)
#endif
#define BEYOND (rx > S) /* the announcement came late, while bytes were being read that followed it */

#ifdef SHM
#define OPEN 1
#else
#define OPEN echo
#endif

inline tell() { d_step { told[0] = 1; told[1] = 1; told[2] = 1 } }
inline deliver(n) { assert(!got[n]); got[n] = 1; rx++ }
inline to(s) { state = s; gate = (s != t); told[0] = 1; told[1] = 1; told[2] = 1 }

/* A whole SWITCH was taken out of TCP: nobody sleeps for it any more. */
inline boarded() { assert(in_recv == 0 && in_peek == 0 && in_poll == 0); to(r); echo = 1 }

/* rx_try with the lock held. ok 1: read something, or changed track; 2: the end; 0: would block. */
inline try()
{
    if
    :: atomic { state == t ->
           if
           :: len(tcp) > 0 -> tcp?k, n; kout++; krx++; assert(k == D); deliver(n); ok = 1
           :: len(tcp) == 0 && fin -> ok = 2
           :: len(tcp) == 0 && !fin -> ok = 0
           fi }
    :: atomic { (state == gS || state == f2) && !NONE_IN_FLIGHT -> ok = 0 }
    :: atomic { state == gS && NONE_IN_FLIGHT && rx < S ->
           if
           :: len(tcp) > 0 -> tcp?k, n; kout++; krx++; assert(k == D); deliver(n); ok = 1
           :: len(tcp) == 0 -> assert(!fin); ok = 0
           fi }
    :: atomic { ((state == gS && rx >= S) || state == f2) && NONE_IN_FLIGHT ->
           if
           :: state == gS && tcp?[D, n] -> to(t); ok = 1
           :: state == gS && BEYOND -> to(t); ok = 1
           :: (state == f2 || tcp?[F1, n]) && !BEYOND && !(PEEKERS_GONE && SLEEPERS_GONE) -> ok = 0
           :: state == gS && tcp?[F1, n] && !BEYOND && PEEKERS_GONE && SLEEPERS_GONE ->
                  tcp?F1, n; kout++; krx++; to(f2); ok = 1
           :: state == f2 && PEEKERS_GONE && SLEEPERS_GONE && len(tcp) > 0 ->
                  tcp?k, n; kout++; krx++; assert(k == F2); boarded(); ok = 1
           :: len(tcp) == 0 && !(state == gS && BEYOND) && (state == gS || (PEEKERS_GONE && SLEEPERS_GONE)) ->
                  ok = 0
           fi }
    :: atomic { state == r && head < tail -> deliver(head); head++; ok = 1 }
    :: atomic { state == r && head == tail ->
           if
           :: len(tcp) > 0 -> tcp?k, n; kout++; krx++; assert(k == RE); to(t); ok = 1
           :: len(tcp) == 0 -> ok = 0
           fi }
    fi;
    k = 0; n = 0
}

/* rx_feed: what a receive under way has brought, with the frames taken out. Lock held. */
inline feed()
{
    atomic {
        i = 0;
        do
        :: i < cnt ->
               if
               :: state == gS && rx < S -> assert(kind[i] == D); deliver(num[i])
               :: state == gS && rx >= S && (kind[i] == D || BEYOND) -> to(t); deliver(num[i]); assert(kind[i] == D)
               :: state == gS && rx >= S && kind[i] != D && !BEYOND -> assert(kind[i] == F1); to(f2)
               :: state == f2 -> assert(kind[i] == F2); boarded()
               :: state == r -> assert(kind[i] == RE); to(t)
               :: state == t -> assert(kind[i] == D); deliver(num[i])
               fi;
               krx++; i++
        :: i == cnt -> break
        od
    }
}

inline forget()
{
    cnt = 0; i = 0; was = 0; ok = 0;
    kind[0] = 0; kind[1] = 0; kind[2] = 0; kind[3] = 0;
    num[0] = 0; num[1] = 0; num[2] = 0; num[3] = 0
}

proctype Receiver(byte me; bit form)
{
    mtype kind[4], k;
    byte num[4], n, cnt, i, ok;
    bool was;

plain:
    /* fb_rx_enter */
#ifdef MUT_ENTER
    was = gate;
    if
    :: was -> was = 0; goto slow
    :: else -> rx_in++
    fi;
#else
    if :: form -> odd++ :: else fi;
    rx_in++;
    was = gate;
    if
    :: was -> atomic { rx_in--; was = 0; if :: form -> odd-- :: else fi }; goto slow
    :: else
    fi;
#endif
    in_recv++;
    atomic {
        (form && len(tcp) >= 3) || (!form && len(tcp) > 0) || fin ->
        in_recv--;
        do
        :: cnt < 4 && len(tcp) > 0 -> tcp?kind[cnt], num[cnt]; cnt++; kout++
        :: (cnt > 0 && !(form && cnt < 3 && len(tcp) > 0)) || (len(tcp) == 0 && fin) -> break
        od
    }
    /* fb_rx_leave */
    if
    :: cnt == 0 -> atomic { rx_in--; if :: form -> odd-- :: else fi }; tell(); goto done
    :: else
    fi;
    was = gate;
    if
#ifdef MUT_LEAVE
    :: 1 ->
#else
    :: !was ->
#endif
#ifdef MUT_COUNT
           rx_in--;
#endif
           atomic {
               do
               :: i < cnt -> assert(kind[i] == D); deliver(num[i]); i++
               :: i == cnt -> break
               od
           }
           krx = krx + cnt;
#ifndef MUT_COUNT
           rx_in--;
#endif
#ifndef MUT_LEAVE
    :: was ->
           LOCK;
           feed();
           rx_in--;
           UNLOCK;
           tell()
#endif
    fi;
    if :: form -> odd-- :: else fi;
    atomic { forget(); goto plain }

slow: /* fb_recvv */
    LOCK;
    if
    :: state == t -> UNLOCK; goto plain
    :: else
    fi;
    try();
    if
    :: ok != 0 -> UNLOCK; atomic { forget(); goto slow }
    :: ok == 0 && state == r -> /* wake.pml */
           UNLOCK; atomic { head < tail || len(tcp) > 0 || state != r -> forget(); goto slow }
    :: ok == 0 && state != r && rx_in > 0 -> /* on the word */
           told[me] = 0; UNLOCK; atomic { told[me] -> forget(); goto slow }
    :: ok == 0 && state != r && rx_in == 0 -> /* on the anchor */
           peekers++;
           UNLOCK;
           in_peek++;
           atomic { THERE -> in_peek-- }
           peekers--;
           atomic { forget(); goto slow }
    fi;
done:
    skip
}

proctype Poller()
{
    mtype k;
    byte n, ok, looks;
    bool was;

    do
    :: looks < 2 ->
#ifdef MUT_PUBLISH
           was = gate;
           seq++;
#else
           seq++; /* published; odd: asleep */
           was = gate;
#endif
           if
           :: !was -> in_poll++; atomic { THERE -> in_poll-- }
           :: else
           fi;
           seq++;
           was = 0;
           /* Not plain: asked of ring and kernel as one stream, and told of changes. */
           LOCK;
           told[2] = 0;
           if
           :: state == t -> UNLOCK
           :: (state == r && head < tail) || ((state == gS || state == f2) && rx < S) -> UNLOCK
           :: else -> try(); UNLOCK; atomic { told[2] || (state == r && head < tail) || len(tcp) > 0 || fin }
           fi;
           ok = 0; looks++
    :: atomic { looks == 2 -> break }
    od
}

/* rx_serve: an announcement. */
proctype Library()
{
    byte a, at, in, old;
    bool no, yes;

end:
    do
    :: atomic { len(ann) > 0 && !lock -> lock = 1; ann?at, a }
       no = 0;
       if
       :: state == t ->
#ifdef MUT_RAISE
              in = rx_in;
              gate = 1;
#else
              gate = 1;
              in = rx_in;
#endif
#ifndef MUT_TWO
              no = no || in > 1;
#endif
#ifndef MUT_FORM
              no = no || odd > 0;
#endif
              atomic { must = (seq & 1); must_see = seq }
#ifndef MUT_ONE
              no = no || (in == 1 && (must || peekers > 0));
#endif
              atomic { if :: !no && in == 0 -> assert(kout == krx) :: else fi }
       :: state == gS
       :: state != t && state != gS -> no = 1
       fi;
       no = no || rx > at;
       if
       :: !no -> atomic { S = at; att = a; to(gS) }
       :: no -> gate = (state != t)
       fi;
       UNLOCK;
       atomic { if :: len(ans) > 0 -> ans?yes, old :: else fi; yes = 0; old = 0; ans!(!no), a; no = 0; a = 0; at = 0; in = 0 }
    od
}

proctype Sender()
{
    byte tx, tries, a;
    bit yes;
    bool hold;

    do
    :: atomic { tx < N && len(tcp) < 4 -> tcp!D, tx; tx++ }
    :: atomic { tx < N && tries < ATT && len(ann) == 0 -> tries++; ann!tx, tries }
       /* The tx lock stays held: an answer, or a plain byte when it has taken too long. */
       if
       :: atomic { len(ans) > 0 -> ans?yes, a; if :: a == tries -> skip :: else -> yes = 0 fi }
          if
          :: yes ->
                 atomic { len(tcp) < 4 -> tcp!F1, 0 }
                 atomic { len(tcp) < 4 -> tcp!F2, 0; tail = tx; head = tx }
                 if :: hold = 1 :: hold = 0 fi; /* may come back at once; or has something for the rail */
                 do
                 :: atomic { OPEN && tx < N -> tail++; tx++; hold = 0 }
                 :: atomic { !hold && head == tail && len(tcp) < 4 -> tcp!RE, 0; break }
                 od;
                 tries = ATT; a = 0; yes = 0
          :: else -> atomic { len(tcp) < 4 -> tcp!D, tx; tx++; yes = 0; a = 0 }
          fi
       :: atomic { len(tcp) < 4 -> tcp!D, tx; tx++ }
       fi
    :: atomic { tx == N -> fin = 1; break }
    :: atomic { len(ans) > 0 -> ans?yes, a; yes = 0; a = 0 }
    od;
    /* All have arrived when everybody has come to the end. */
    (rx == N)
}

init
{
    atomic {
        run Sender(); run Library();
#if NR == 2
        run Receiver(1, 0);
#endif
#ifdef ODD
        run Receiver(0, 1);
#else
        run Receiver(0, 0);
#endif
#if NP == 1
        run Poller()
#endif
    }
}
