/*
 * pl_poll_arm.c - a poll that the library serves asks for its wakes: from the words of rails, from
 * the streams' watchers, from epoll instances.
 *
 * The thread that waits (pl_poll_serve.c). No locks of its own.
 */
#include "preload/pl_poll_wait.h"

#include "preload/pl_epoll.h"
#include "rsock/shard.h"

/* The progress thread shall drain the common shard as long as we sleep on what its news are
 * told by; once. */
static void lean(struct pl_poll_wait *w)
{
    if (w->leans)
        return;
    w->leans = true;
    rsk_shard_lean(rsk_shard_common());
}

void pl_poll_stand(struct pl_poll_wait *w)
{
    if (w->leans)
        rsk_shard_disarm(rsk_shard_common());
    w->leans = false;
}

bool pl_poll_by_words(const struct pl_poll_wait *w, const struct pollfd *fds)
{
    unsigned words = 0, more;

    for (nfds_t i = 0; i < w->n; i++) {
        const struct pl_entry *e = &w->entry[i];

        if (fds[i].fd < 0 || e->gone)
            continue;
        if (!e->hot || e->muted || e->file->kind != PL_STREAM)
            return false;
        more = fb_has_words(e->file->stream, pl_poll_asked(&fds[i]));
        words += more;
        if (!more || words >= FUTEX_WAITV_MAX)
            return false;
    }
    return words > 0;
}

/* Asks for the wakes of a stream on a rail. *words: by its words, or that is not
 * possible any more. */
static bool arm_hot(struct pl_poll_wait *w, struct pl_entry *e, short events, bool *words)
{
    short now;

    if (!*words) {
        pl_epoll_waited_elsewhere(e->file->stream);
        lean(w);
        return fb_arm(e->file->stream, e->file->fd, events) != 0;
    }
    now = fb_arm_words(e->file->stream, e->file->fd, events, &e->words);
    *words = now || (e->words.rail && pl_words_add(&w->words, &e->words));
    return now != 0;
}

/* Asks for wakes. True: something holds already, or changed. */
static bool arm(struct pl_poll_wait *w, const struct pollfd *fds, bool *words)
{
    bool holds = false;

    for (nfds_t i = 0; i < w->n; i++) {
        struct pl_entry *e = &w->entry[i];

        if (!e->file)
            continue;
        if (e->file->kind == PL_EPOLL) {
            if (!e->joined)
                pl_epoll_join(pl_epoll_of(e->file));
            e->joined = true;
            holds |= pl_epoll_arm(pl_epoll_of(e->file), &e->armed) ||
                     e->hot != pl_epoll_special(pl_epoll_of(e->file));
            continue;
        }
        /* Plain ones too: the engine tells when they board. */
        if (!e->watched)
            fb_watch(e->file->stream, &e->watcher, NULL);
        e->watched = true;
        if (e->hot)
            holds |= arm_hot(w, e, pl_poll_asked(&fds[i]), words);
        holds |= e->hot == fb_plain(e->file->stream);
    }
    return holds;
}

void pl_poll_put_words(struct pl_poll_wait *w)
{
    for (nfds_t i = 0; i < w->n; i++)
        fb_words_put(&w->entry[i].words);
}

bool pl_poll_arm(struct pl_poll_wait *w, const struct pollfd *fds, bool *words)
{
    for (;;) {
        bool tried = *words, holds;

        atomic_store(&w->woken, tried ? PL_WAKE_WORD : PL_WAKE_FD); /* before arming: see wake() */
        if (tried)
            pl_words_begin(&w->words, &w->woken, PL_WAKE_WORD);
        holds = arm(w, fds, words);
        if (*words == tried)
            return holds;
        pl_poll_put_words(w);
    }
}
