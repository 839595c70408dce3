/*
 * tap.c - `railsock tap`: what goes over one connection of a running program, as pcapng. The loop
 * between the ring (tap_ask.c) and the file (tap_pcapng.c).
 */
#include "tools/tap.h"

#include "config/reason.h"
#include "tools/commands.h"
#include "tools/tap_wish.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { SHORT_MS = 1, LONG_MS = 20, PATIENCE_MS = 1000 };

static volatile sig_atomic_t stopped;

/* The first one lets a write to a slow reader come to its end, the second one does not. */
static void on_signal(int sig)
{
    if (stopped)
        _exit(128 + sig);
    stopped = sig;
}

static void catch_signals(void)
{
    const int sigs[] = {SIGINT, SIGTERM, SIGHUP};
    struct sigaction a = {.sa_handler = on_signal, .sa_flags = SA_RESTART};

    for (size_t i = 0; i < sizeof(sigs) / sizeof(sigs[0]); i++) {
        struct sigaction old;

        if (sigaction(sigs[i], NULL, &old) == 0 && old.sa_handler != SIG_IGN)
            sigaction(sigs[i], &a, NULL);
    }
    a.sa_handler = SIG_IGN;
    sigaction(SIGPIPE, &a, NULL);
}

static double seconds_now(void)
{
    struct timespec ts;

    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (double)ts.tv_sec + (double)ts.tv_nsec * 1e-9;
}

/* What was there before goes, so not before there is something to write. A pipe's reader wants to
 * know at once what comes. */
static bool can_wait(const char *name)
{
    struct stat st;

    return strcmp(name, "-") != 0 && (stat(name, &st) != 0 || S_ISREG(st.st_mode));
}

static FILE *open_output(const char *name)
{
    int fd = strcmp(name, "-") == 0
                 ? dup(1)
                 : open(name, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOCTTY, 0600);
    FILE *f = NULL;
    struct stat st;

    /* What was there already may be others' to read. A device or a pipe is the
     * user's own affair. */
    if (fd >= 0 && (strcmp(name, "-") == 0 || fstat(fd, &st) != 0 || !S_ISREG(st.st_mode) ||
                    fchmod(fd, 0600) == 0))
        f = fdopen(fd, "w");
    if (!f)
        fprintf(stderr, "railsock tap: %s: %s\n", name, strerror(errno));
    else
        setvbuf(f, NULL, _IOFBF, 1 << 20);
    return f;
}

/* Nobody reads the pipe any more. A write would tell, but there may be nothing to write. */
static bool is_unread(FILE *f)
{
    struct pollfd p = {.fd = f ? fileno(f) : -1};

    return poll(&p, 1, 0) > 0 && p.revents & (POLLERR | POLLHUP);
}

/* Until the process has come for the ring; or without one if nobody reads what is written. */
static bool wait_for_it(struct tap_link *l, const struct stat_conn *c, FILE *f, double until)
{
    double begun = seconds_now();
    bool told = false;

    while (!stopped && seconds_now() < until) {
        int r = tap_wait(l, LONG_MS);

        if (r)
            return r > 0;
        if (is_unread(f))
            return true;
        if (!told && (seconds_now() - begun) * 1000 > PATIENCE_MS) {
            told = true;
            fprintf(stderr, "railsock tap: nothing has moved on the connection yet%s; ^C ends\n",
                    c->boarded_at
                        ? ""
                        : ", or its program has had no rail at all: then tcpdump sees it");
        }
    }
    fputs("railsock tap: nothing has moved on the connection\n", stderr);
    return false;
}

/* Everything that there is, at most what the ring holds. False: it is over. */
static bool drain(struct tap_link *l, struct tap_file *t, uint64_t count, const char **why)
{
    struct tap_record r;
    const uint8_t *bytes;
    uint64_t most = l->head + l->size;
    char where[sizeof(t->where)];
    int is = 0;

    tap_where(l, where);
    tap_count_lost(l);
    tap_file_where(t, where, l->lost_packets);
    while (l->head < most && (is = tap_next(l, &r, &bytes)) > 0) {
        if (r.kind == TAP_END) {
            *why = r.reason ? cfg_reason_sentence(r.reason) : "the connection is closed";
            return false;
        }
        tap_file_put(t, &r, bytes);
        if (ferror(t->f) || (count && tap_file_packets(t) >= count))
            return false;
    }
    if (is < 0)
        *why = "the process has written nonsense";
    return is >= 0;
}

static void record(struct tap_link *l, struct tap_file *t, const struct tap_wish *w, double until,
                   const char **why)
{
    uint64_t before = 0;
    int ms = SHORT_MS;
    bool last;

    do {
        bool more;

        /* What was there when it was stopped is still written. */
        last = stopped || seconds_now() >= until;
        if (!drain(l, t, w->count, why))
            return;
        more = l->head != before;
        before = l->head;
        if ((more && fflush(t->f) != 0) || is_unread(t->f))
            return;
        /* The program tells nobody that there is something: that would cost it a system call. */
        ms = more ? SHORT_MS : ms < LONG_MS ? ms * 2 : LONG_MS;
        if (!last && !tap_sleep(l, ms)) {
            *why = "the program has ended it";
            drain(l, t, w->count, why);
            return;
        }
    } while (!last);
}

/* False: said why not. */
static bool open_and_begin(struct tap_file *t, const struct tap_wish *w, const char *who,
                           const struct tap_choice *it, FILE **f)
{
    *f = open_output(w->output);
    if (!*f)
        return false;
    tap_file_begin(t, *f, who, it->c, w->snap);
    return fflush(*f) == 0;
}

static int tap(const struct tap_wish *w, const struct tap_choice *it)
{
    double until = seconds_now() + (w->seconds > 0 ? w->seconds : 1e9);
    struct tap_link l = TAP_NO_LINK;
    struct tap_file t;
    const char *why = NULL;
    uint64_t lost = 0;
    char who[128];
    bool good = true, failed;
    FILE *f = NULL;

    snprintf(who, sizeof(who), "%s, process %u", it->p->program, it->p->pid);
    for (char *p = who; *p; p++)
        if ((unsigned char)*p < ' ' || (unsigned char)*p >= 0x7f)
            *p = '?';
    catch_signals();
    if (!can_wait(w->output))
        good = open_and_begin(&t, w, who, it, &f);
    good = good && tap_request(&l, it->p, it->c, w->ring, w->snap) &&
           wait_for_it(&l, it->c, f, until) && (f || open_and_begin(&t, w, who, it, &f));
    if (good && l.ring) {
        record(&l, &t, w, until, &why);
        tap_count_lost(&l);
        for (int i = 0; i <= FB_PATH_VERBS; i++)
            lost += l.lost_packets[i];
        tap_file_end(&t, l.lost_packets);
        fprintf(stderr,
                "railsock tap: %s: %llu packets, %llu bytes; dropped %llu packets, %llu "
                "bytes%s%s\n",
                who, (unsigned long long)tap_file_packets(&t), (unsigned long long)t.bytes,
                (unsigned long long)lost, (unsigned long long)l.lost_bytes, why ? "; " : "",
                why ? why : "");
    }
    /* What could not be written once is gone, whatever comes after. Who closes the pipe
     * has seen enough. */
    failed = f && ferror(f) != 0;
    if (f && (fclose(f) != 0 || failed) && errno != EPIPE) {
        fprintf(stderr, "railsock tap: %s: %s\n", w->output,
                failed ? "not everything could be written" : strerror(errno));
        good = false;
    }
    tap_close(&l);
    return good ? 0 : 1;
}

int cmd_tap(int argc, char **argv)
{
    struct tap_wish w;
    struct stat_list list;
    struct tap_choice it;
    int status = 1;

    if (!tap_parse(argc, argv, &w))
        return command_wrong("railsock tap");
    if (w.help)
        return command_help("railsock tap", tap_usage);
    if (strcmp(w.output, "-") == 0 && !command_has_output()) {
        fprintf(stderr, "railsock tap: -o -: %s\n", strerror(errno));
        return 1;
    }
    if (tap_choose(&w, &list, &it))
        status = tap(&w, &it);
    stat_free(&list);
    return status;
}
