/*
 * pl_poll_words.c - a sleep on the futex words of several rails (pl_poll.h): the peers themselves
 * wake the thread. Else it takes two wake-ups, of the progress thread and then of ours.
 *
 * Any application thread. No locks.
 */
#include "preload/pl_poll.h"

#include <errno.h>

#include "rsock/section.h"
#include "rsock/sys.h"
#include "rsock/waitv.h"

static void add(struct pl_words *w, _Atomic uint32_t *word, uint32_t value, uint32_t flags)
{
    w->v[w->n++] =
        (struct futex_waitv){.uaddr = (uintptr_t)word, .val = value, .flags = FUTEX_32 | flags};
}

void pl_words_begin(struct pl_words *w, _Atomic uint32_t *own, uint32_t value)
{
    w->n = 0;
    add(w, own, value, FUTEX_PRIVATE_FLAG);
}

bool pl_words_add(struct pl_words *w, const struct fb_words *words)
{
    if (w->n + words->n > FUTEX_WAITV_MAX)
        return false;
    for (unsigned i = 0; i < words->n; i++)
        add(w, words->word[i], words->value[i], 0);
    return true;
}

int pl_words_sleep(struct pl_words *w, uint64_t deadline, uint32_t signals)
{
    struct timespec at, *until = NULL;

    if (deadline != PL_FOREVER) {
        uint64_t now = sys_now(), ns = sys_now_kernel() + (deadline > now ? deadline - now : 0);

        at = (struct timespec){(time_t)(ns / 1000000000u), (long)(ns % 1000000000u)};
        until = &at;
    }
    return RSK_OPENED(rsk_waitv(w->v, w->n, until, signals)) == -EINTR ? -EINTR : 0;
}
