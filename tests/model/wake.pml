/*
 * wake.pml - a thread that finds nothing on a rail goes to sleep, and is woken: rx_wait and
 * rx_prepare (wait.c), conn_wake (wake.c), the locks that hand work on (lock.h, tx_unlock, rx_unlock,
 * conn_serve), a wire's arm (rsock). What is asked is
 * whether everything that comes is taken (liveness, weak fairness).
 *
 * The peer publishes a byte in the ring, and wakes the word if the ring says that somebody waits. The
 * kernel reports a frame on the anchor to the progress thread, which leaves a bit (rx_todo), serves it if
 * it gets the lock, and wakes. A second thread of the application holds the lock for a moment, as a
 * poll or FIONREAD does. One byte or frame at a time is under way of each kind; BYTES and FRAMES of
 * them come, at any moment, and the other thread has TURNS.
 *
 * Checked: no run stops (invalid end states), bytes_are_read, frames_are_taken,
 * also when the application is away (AWAY: no reader), and reader_is_told (ltl).
 *
 * Each MUT_* leaves one rule out:
 *   MUT_ARM     the reader does not look at the ring again after it has asked to be woken
 *   MUT_FENCE   the peer looks for who waits before it publishes
 *   MUT_CHANGES the reader does not look whether conn_wake has run since it last looked
 *   MUT_WAITERS the reader looks for changes, then says that it waits
 *   MUT_VAL     the word's value is read right before the sleep, not before the last look
 *   MUT_TODO    who could not get the lock leaves no bit
 *   MUT_UNLOCK  who unlocks does not look at the bits
 */
#ifdef AWAY
#define BYTES 0
#endif
#ifndef BYTES
#define BYTES 2
#endif
#ifndef FRAMES
#define FRAMES 2
#endif
#ifndef TURNS
#define TURNS 1
#endif

bool data;           /* a byte in the ring that is not read yet */
bool frame;          /* a frame on the anchor that is not taken yet */
bool edge;           /* the kernel has something to tell the progress thread */
bool want;           /* the ring: wake me */
bool moved;          /* the reader has not looked since a frame changed the track */
bool lock, todo, news, waits;
byte word, changes; 

#define LOCK atomic { !lock -> lock = 1 }

inline conn_wake()
{
    changes++;
    if
    :: waits -> word++
    :: else
    fi
}

/* A frame changes the track: from here on the reader has to look elsewhere (rx_to). */
inline taken()
{
    if
    :: frame -> atomic { frame = 0; moved = 1 }; conn_wake()
    :: else
    fi
}

/* rx_serve with TODO_ANCHOR: rx_anchor. Lock held. */
inline serve()
{
    if
    :: todo ->
           todo = 0;
           news = 0;
           taken()
    :: else
    fi
}

inline unlock()
{
    lock = 0;
#ifndef MUT_UNLOCK
    do
    :: todo ->
           if
           :: atomic { !lock -> lock = 1 } -> serve(); lock = 0
           :: else -> break
           fi
    :: else -> break
    od
#endif
}

#ifndef AWAY
active proctype Reader()
{
    byte val, saw;

    do
    :: LOCK;
       moved = 0;
       if
       :: data -> data = 0; unlock()
       :: !data && todo -> serve(); unlock()
       :: !data && !todo && news -> /* rx_anchor, from rx_try */
              news = 0; taken();
              unlock()
       :: else ->
              saw = changes;
              val = word;
              unlock();
#ifdef MUT_WAITERS
              if
              :: saw == changes && !todo && !news ->
                     waits = 1;
#else
              waits = 1;
              if
#ifdef MUT_CHANGES
              :: 1 ->
#else
              :: saw == changes && !todo && !news ->
#endif
#endif
                     want = 1;
#ifdef MUT_VAL
                     val = word;
#endif
                     if
#ifndef MUT_ARM
                     :: data
#endif
#ifdef MUT_ARM
                     :: 1 ->
#else
                     :: else ->
#endif
#ifdef MUT_VAL
                            val = word;
#endif
end:                        (val != word)
                     fi
              :: else
              fi;
              waits = 0
       fi;
       saw = 0; val = 0
    od
}

#endif

/* Another thread of the application: holds the lock for a moment, serves what came meanwhile. */
active proctype Other()
{
    byte n;

    do
    :: n < TURNS -> n++; LOCK; unlock()
    :: n == TURNS -> break
    od
}

/* The other process, over shared memory. */
active proctype Peer()
{
    bool saw;
    byte n;

    do
    :: n == BYTES -> break
    :: n < BYTES && !data ->
           n++;
#ifdef MUT_FENCE
           saw = want;
           data = 1;
#else
           data = 1;
           saw = want;
#endif
           if
           :: saw -> want = 0; word++
           :: else
           fi;
           saw = 0
    od
}

/* The kernel: a frame has come, and an edge with it. */
active proctype Anchor()
{
    byte n;

    do
    :: atomic { n < FRAMES && !frame -> n++; frame = 1; edge = 1 }
    :: n == FRAMES -> break
    od
}

/* anchor_event on the progress thread, then conn_serve and conn_wake. */
active proctype Progress()
{
end:
    do
    :: edge ->
           edge = 0;
           news = 1;
#ifndef MUT_TODO
           todo = 1;
#endif
           if
           :: todo ->
                  if
                  :: atomic { !lock -> lock = 1 } -> serve(); unlock()
                  :: else
                  fi
           :: else
           fi;
           conn_wake()
    od
}

ltl bytes_are_read { [] (data -> <> !data) }
ltl frames_are_taken { [] (frame -> <> !frame) }
ltl reader_is_told { [] (moved -> <> !moved) }
