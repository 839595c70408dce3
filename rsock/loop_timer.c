/*
 * loop_timer.c - timers of the progress thread: a binary heap by due time, so that a
 * cancelled timer is gone at once. Progress thread only.
 */
#include "rsock/loop_timer.h"

#include <stddef.h>
#include <stdlib.h>

#include "rsock/loop.h"
#include "rsock/sys.h"

struct rsk_timer {
    uint64_t due, order; /* order: those due at one time fire as they were added */
    void (*fn)(void *arg);
    void *arg;
    size_t at;
};

static struct rsk_timer **heap;
static size_t n, room;
static uint64_t added;

static bool before(const struct rsk_timer *a, const struct rsk_timer *b)
{
    return a->due != b->due ? a->due < b->due : a->order < b->order;
}

static void put(size_t i, struct rsk_timer *t)
{
    heap[i] = t;
    t->at = i;
}

static void sift(size_t i, struct rsk_timer *t)
{
    while (i > 0 && before(t, heap[(i - 1) / 2])) {
        put(i, heap[(i - 1) / 2]);
        i = (i - 1) / 2;
    }
    for (;;) {
        size_t c = 2 * i + 1;

        if (c + 1 < n && before(heap[c + 1], heap[c]))
            c++;
        if (c >= n || !before(heap[c], t))
            break;
        put(i, heap[c]);
        i = c;
    }
    put(i, t);
}

struct rsk_timer *rsk_timer_add(uint64_t ns, void (*fn)(void *arg), void *arg)
{
    struct rsk_timer *t = malloc(sizeof *t);

    if (!t)
        return NULL;
    if (n == room) {
        size_t more = room ? room * 2 : 16;
        struct rsk_timer **h = realloc(heap, more * sizeof(struct rsk_timer *));

        if (!h) {
            free(t);
            return NULL;
        }
        heap = h;
        room = more;
    }
    *t = (struct rsk_timer){.due = sys_now() + ns, .order = added++, .fn = fn, .arg = arg};
    n++;
    sift(n - 1, t);
    return t;
}

static void take_out(struct rsk_timer *t)
{
    struct rsk_timer *last = heap[--n];

    if (last != t)
        sift(t->at, last);
}

void rsk_timer_cancel(struct rsk_timer *t)
{
    if (!t)
        return;
    take_out(t);
    free(t);
}

uint64_t timers_next(void)
{
    uint64_t now;

    if (!n)
        return UINT64_MAX;
    now = sys_now();
    return heap[0]->due <= now ? 0 : heap[0]->due - now;
}

void timers_run(void)
{
    uint64_t now, last = added;

    if (!n)
        return;
    now = sys_now();
    /* One that a callback adds waits for the next round, or it could keep the thread here. */
    while (n && heap[0]->due <= now && heap[0]->order < last) {
        struct rsk_timer *t = heap[0];

        take_out(t);
        t->fn(t->arg);
        free(t);
    }
}

void timers_clear(void)
{
    while (n)
        free(heap[--n]);
    free(heap);
    timers_forget();
}

void timers_forget(void)
{
    heap = NULL;
    n = room = 0;
}
