/*
 * walks_asleep.c - steps of random walks in which one or two threads sleep in a call while
 * things happen to their connection. After each thing is said which of the calls have
 * returned, and with what.
 */
#include "tests/asleep.h"
#include "tests/conform/forms_ready.h"
#include "tests/conform/forms_recv.h"
#include "tests/conform/forms_send.h"
#include "tests/conform/walks.h"

#include <stdatomic.h>
#include <sys/eventfd.h>

/* What a send of more than both ends have room for sends. */
enum { LONG = 20 << 20 };

static char *long_bytes(void)
{
    static char *bytes;

    if (!bytes) {
        bytes = malloc(LONG);
        must(bytes != NULL, "malloc");
        for (size_t k = 0; k < LONG; k++)
            bytes[k] = (char)pattern(k);
    }
    return bytes;
}

struct sleeper {
    pthread_t thread;
    _Atomic int tid;
    atomic_bool back;
    int over; /* an eventfd, which is told when it is back */
    bool told;
    int end, fd; /* which of the walk, and its number at that moment */
    const struct rform *receives;
    const struct qform *asks;  /* if not NULL */
    const struct sform *sends; /* if not NULL: LONG bytes */
    int flags;                 /* MSG_*, or POLL* */
    size_t n;
    long got;
    int error;
    char bytes[MOST_UNREAD];
};

static void *sleeper_main(void *arg)
{
    struct sleeper *s = arg;

    atomic_store(&s->tid, my_tid());
    errno = CLEAN;
    if (s->sends)
        s->got = s->sends->put(s->fd, long_bytes(), LONG);
    else if (s->asks)
        s->got = s->asks->ask(s->fd, s->flags, 10000);
    else if (s->receives->get_with)
        s->got = s->receives->get_with(s->fd, s->bytes, s->n, s->flags);
    else
        s->got = s->receives->get(s->fd, s->bytes, s->n);
    s->error = errno;
    atomic_store(&s->back, true);
    eventfd_write(s->over, 1);
    return NULL;
}

static void sleeper_start(struct sleeper *s)
{
    s->over = eventfd(0, EFD_CLOEXEC);
    must(s->over >= 0, "eventfd");
    must(pthread_create(&s->thread, NULL, sleeper_main, s) == 0, "pthread_create");
    until_it_sleeps(&s->tid);
}

static void sleeper_end(struct sleeper *s)
{
    pthread_join(s->thread, NULL);
    close(s->over);
}

static void sleeper_begin(struct walk *w, struct sleeper *s, int i, bool asks)
{
    static const int flags[] = {
        0, 0, MSG_WAITALL, MSG_WAITALL, MSG_PEEK, MSG_PEEK | MSG_WAITALL, MSG_TRUNC};
    static const int events[] = {POLLIN, POLLIN | POLLPRI, POLLRDHUP, POLLPRI, ALL & ~POLLOUT};

    *s = (struct sleeper){
        .end = i, .fd = w->fd[i], .n = 1 + below(w, below(w, 3) ? FEW : MOST_UNREAD)};
    s->receives = &rforms[below(w, RFORMS)];
    if (asks) {
        s->asks = &qforms[below(w, QFORMS)];
        s->flags = events[below(w, COUNT(events))];
        /* select would sleep through what it cannot tell. */
        if (strstr(s->asks->name, "select"))
            s->flags = POLLIN | POLLPRI;
    } else if (s->receives->get_with) {
        s->flags = flags[below(w, COUNT(flags))];
    }
    printf(" %c sleeps in %s(%zu, %#x)\n", "ab"[i], asks ? s->asks->name : s->receives->name,
           asks ? 0 : s->n, (unsigned)s->flags);
    sleeper_start(s);
}

/* Prints what it has got, once. */
static void sleeper_look(struct walk *w, struct sleeper *s)
{
    char what[40];

    if (s->told || !atomic_load(&s->back))
        return;
    s->told = true;
    sleeper_end(s);
    snprintf(what, sizeof(what), " %c is back", "ab"[s->end]);
    if (s->asks && s->got >= 0) {
        say_events(what, (int)s->got);
    } else {
        show(what, s->got, s->error);
        if (!s->asks)
            has_got(w, s->end, s->flags & MSG_TRUNC ? NULL : s->bytes, s->got,
                    !(s->flags & MSG_PEEK));
    }
}

static void sends_some(struct walk *w, int i)
{
    static char bytes[MOST_UNREAD];
    size_t n = 1 + below(w, below(w, 2) ? FEW : 3000);
    ssize_t did;

    if (w->fd[i] < 0 || n > MOST_UNREAD - unread(w, !i) || w->deaf[!i])
        return;
    for (size_t k = 0; k < n; k++)
        bytes[k] = (char)pattern(w->sent[i] + k);
    did = SHOW(send(w->fd[i], bytes, n, MSG_DONTWAIT));
    if (did > 0)
        w->sent[i] += (size_t)did;
}

/* What happens meanwhile, at end i unless said otherwise; both: somebody sleeps there, too. */
static void happens(struct walk *w, int i, bool both)
{
    int other = !i;

    printf(" %c ", "ab"[i]);
    switch (w->fd[i] < 0 ? 20 : below(w, both ? 11 : 14)) {
    case 0:
        SHOW(shutdown(w->fd[i], SHUT_WR));
        break;
    case 1:
    case 2:
        if (w->fd[other] >= 0 && !w->deaf[other])
            sends_urgent(w, i);
        else
            say("-");
        break;
    case 3: /* the sleeper's own half */
        say("-");
        if (w->fd[other] >= 0)
            SHOW_AS("shutdown of the sleeper's half", shutdown(w->fd[other], SHUT_WR));
        break;
    case 11:
    case 12:
        SHOW(close(w->fd[i]));
        w->fd[i] = -1;
        break;
    case 13:
        reset(w->fd[i]);
        say("reset");
        w->fd[i] = -1;
        break;
    case 20:
        say("-");
        break;
    default:
        sends_some(w, i);
        say("-");
    }
}

void sleeps(struct walk *w, int i)
{
    static struct sleeper s[2];
    int count = below(w, 3) == 0 ? 2 : 1, things = 1 + (int)below(w, 4);
    bool out = false, both = false;

    say("sleeps");
    if (w->deaf[0] || w->deaf[1])
        return;
    sleeper_begin(w, &s[0], i, below(w, 3) == 0);
    /* Who takes bytes, and who waits for the same, are not two on one end: either may be first. */
    if (count == 2 && w->fd[!i] >= 0) {
        sleeper_begin(w, &s[1], !i, below(w, 2));
        both = true;
    } else {
        count = 1;
    }
    for (int k = 0; k < things; k++) {
        happens(w, !i, both);
        settle();
        for (int j = 0; j < count; j++)
            sleeper_look(w, &s[j]);
    }
    for (int j = 0; j < count; j++)
        out |= !s[j].told;
    if (!out)
        return;
    /* That ends every call. */
    if (w->fd[!i] >= 0 && (both || below(w, 2))) {
        printf(" %c ", "ab"[!i]);
        SHOW(shutdown(w->fd[!i], SHUT_RDWR));
        w->deaf[!i] = true;
    } else if (w->fd[!i] >= 0) {
        say(" %c is reset", "ab"[!i]);
        reset(w->fd[!i]);
        w->fd[!i] = -1;
    }
    settle();
    for (int j = 0; j < count; j++)
        sleeper_look(w, &s[j]);
    for (int j = 0; j < count; j++)
        if (!s[j].told) {
            say(" %c sleeps on", "ab"[s[j].end]);
            poll(&(struct pollfd){.fd = s[j].over, .events = POLLIN}, 1, -1);
            sleeper_look(w, &s[j]);
        }
}

/* ---- a send of more than both ends have room for */

/* At most n of them; returns how many, and says so if one is wrong. */
static size_t takes_long(int fd, size_t at, size_t n)
{
    static char bytes[100000];
    size_t all = 0;

    while (all < n) {
        size_t want = n - all < sizeof(bytes) ? n - all : sizeof(bytes);
        ssize_t did = recv(fd, bytes, want, MSG_DONTWAIT);

        if (did <= 0)
            break;
        if (memcmp(bytes, long_bytes() + at + all, (size_t)did) != 0)
            say("wrong bytes");
        all += (size_t)did;
    }
    return all;
}

/* One thing, while end i sends; true if end !i is gone. */
static bool meanwhile(struct walk *w, int i, size_t *got)
{
    char bytes[FEW];

    switch (below(w, 12)) {
    case 0:
        SHOW(shutdown(w->fd[!i], SHUT_WR));
        break;
    case 1:
        SHOW(shutdown(w->fd[i], SHUT_WR));
        break;
    case 2:
        SHOW(close(w->fd[!i]));
        w->fd[!i] = -1;
        return true;
    case 3:
        reset(w->fd[!i]);
        say("reset");
        w->fd[!i] = -1;
        return true;
    case 4:
        SHOW(send(w->fd[!i], "!", 1, MSG_OOB));
        break;
    case 5:
    case 6:
        SHOW(send(w->fd[!i], bytes, 1 + below(w, FEW), MSG_DONTWAIT));
        break;
    case 7:
        SHOW(recv(w->fd[i], bytes, sizeof(bytes), MSG_DONTWAIT));
        break;
    case 8:
        say_events("poll", qforms[0].ask(w->fd[i], ALL & ~POLLOUT, 0));
        break;
    default:
        say("takes some");
        *got += takes_long(w->fd[!i], *got, 1 + below(w, 400000));
    }
    return false;
}

/* Ends both. */
void sends_long(struct walk *w, int i)
{
    static struct sleeper s;
    struct pollfd over = {.events = POLLIN};
    size_t got = 0;
    bool gone = false;
    char byte;

    say("sends much more than there is room for");
    if (w->fd[0] < 0 || w->fd[1] < 0 || w->deaf[0] || w->deaf[1])
        return;
    while (recv(w->fd[!i], &byte, 1, MSG_DONTWAIT) == 1)
        ;
    s = (struct sleeper){.sends = &sforms[below(w, SFORMS - 2)], .fd = w->fd[i]};
    say("%s", s.sends->name);
    long_bytes();
    sleeper_start(&s);
    for (unsigned k = 1 + below(w, 5); k > 0 && !gone; k--) {
        gone = meanwhile(w, i, &got);
        settle();
    }
    while (!gone && !(atomic_load(&s.back) && (s.got <= 0 || got == (size_t)s.got))) {
        struct pollfd q[] = {{.fd = w->fd[!i], .events = POLLIN},
                             {.fd = atomic_load(&s.back) ? -1 : s.over, .events = POLLIN}};
        size_t more = 0;

        if (poll(q, 2, 5000) < 1)
            break;
        if (q[0].revents && (more = takes_long(w->fd[!i], got, LONG - got)) == 0)
            break; /* the end */
        got += more;
    }
    over.fd = s.over;
    must(poll(&over, 1, 5000) == 1, "a send sleeps on");
    sleeper_end(&s);
    if (s.got > 0 && s.got < LONG)
        say("has sent some");
    else
        show("has sent", s.got, s.error);
    if (!gone)
        say("of which have come: %s", s.got > 0 && got != (size_t)s.got ? "not as many" : "all");
    ready_by(&qforms[below(w, QFORMS)], w->fd[i], ALL & ~POLLOUT);
    SHOW(recv(w->fd[i], &byte, 1, MSG_DONTWAIT));
    say_error(w->fd[i]);
    SHOW(send(w->fd[i], "x", 1, MSG_DONTWAIT));
    for (int k = 0; k < 2; k++) {
        if (w->fd[k] >= 0)
            close(w->fd[k]);
        w->fd[k] = -1;
    }
}
