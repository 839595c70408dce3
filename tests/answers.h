/*
 * answers.h - a thread that gives something each time that it is asked for it. For unit
 * tests and programs.
 */
#ifndef TESTS_ANSWERS_H
#define TESTS_ANSWERS_H

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>

enum { ANSWERS_LOOKS = 20000 }; /* some tenths of a millisecond */

struct answers {
    void (*give)(void *arg);
    void *arg;
    pthread_t thread;
    /* It gives within a microsecond, if the machine lets both threads run, and takes a
     * processor for it. */
    bool at_once;
    _Atomic unsigned asked, given, looks;
    _Atomic bool over;
};

static inline void *answers_main(void *arg)
{
    struct answers *a = arg;

    while (!atomic_load(&a->over)) {
        if (atomic_load(&a->asked) == atomic_load(&a->given)) {
            /* A slice that is given away comes back late on a busy machine. */
            if (!a->at_once || atomic_fetch_add(&a->looks, 1) % ANSWERS_LOOKS == 0)
                sched_yield();
            continue;
        }
        a->give(a->arg);
        atomic_fetch_add(&a->given, 1);
    }
    return NULL;
}

/* give and arg are set. False: no thread. */
static inline bool answers_begin(struct answers *a)
{
    return pthread_create(&a->thread, NULL, answers_main, a) == 0;
}

/* at_once: when it is seen to look, or has not been for many slices. */
static inline void answers_ask(struct answers *a)
{
    unsigned looks = atomic_load(&a->looks);

    for (unsigned i = 1; a->at_once && i < 100 * ANSWERS_LOOKS && atomic_load(&a->looks) == looks;
         i++)
        if (i % ANSWERS_LOOKS == 0)
            sched_yield();
    atomic_fetch_add(&a->asked, 1);
}

/* All that was asked for has been given. */
static inline void answers_all_given(struct answers *a)
{
    while (atomic_load(&a->asked) != atomic_load(&a->given))
        sched_yield();
}

static inline void answers_end(struct answers *a)
{
    answers_all_given(a);
    atomic_store(&a->over, true);
    pthread_join(a->thread, NULL);
}

#endif
