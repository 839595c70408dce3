/*
 * lab_session.c - how a lab fails and what it reports. Does no I/O but to stderr.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "lab_session.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#define LATE_MS 2000 /* for the last output of a command whose time is over */

int64_t lab_now_ms(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

struct lab_patience lab_session_patience(const struct lab_session *s)
{
    bool limited = s->phase == LAB_PHASE_RUN && s->deadline_ms;

    return (struct lab_patience){s->signal_fd, limited ? s->deadline_ms + LATE_MS : 0};
}

/* A line to stderr. That it cannot be written is not said anywhere. */
static void __attribute__((format(printf, 2, 3)))
say_line(struct lab_session *s, const char *format, ...)
{
    char *line;
    va_list ap;
    int len;

    va_start(ap, format);
    len = vasprintf(&line, format, ap);
    va_end(ap);
    if (len < 0)
        return;
    if (!s->given_up[STDERR_FILENO])
        s->given_up[STDERR_FILENO] =
            lab_write(STDERR_FILENO, lab_session_patience(s), line, (size_t)len) == -ETIMEDOUT;
    free(line);
}

void lab_say(struct lab_session *s, unsigned number, const char *format, ...)
{
    char text[512];
    va_list ap;

    va_start(ap, format);
    vsnprintf(text, sizeof text, format, ap);
    va_end(ap);
    if (number)
        say_line(s, "railsock lab: host %u: %s%s\n", number, text, s->raw ? "\r" : "");
    else
        say_line(s, "railsock lab: %s%s\n", text, s->raw ? "\r" : "");
}

void lab_host_fail(struct lab_host *host, const char *why)
{
    if (!host->failure[0])
        snprintf(host->failure, sizeof host->failure, "%s", why);
    host->session->over = true;
}

static void report_console(struct lab_session *s, struct lab_host *host)
{
    unsigned first = host->tail_n > LAB_TAIL ? host->tail_n - LAB_TAIL : 0;

    if (s->options->verbose)
        return;
    for (unsigned i = first; i < host->tail_n; i++)
        say_line(s, "host%u console| %s\n", host->number,
                 host->tail[i % LAB_TAIL] ? host->tail[i % LAB_TAIL] : "");
}

int lab_session_report(struct lab_session *s)
{
    int status = s->status;
    int worst = 0;

    for (unsigned i = 0; i < s->options->hosts; i++) {
        struct lab_host *host = &s->hosts[i];

        if (host->failure[0] && !s->signal) {
            lab_say(s, host->number, "%s", host->failure);
            report_console(s, host);
            status = LAB_EXIT_FAILED;
        }
        if (host->status > worst)
            worst = host->status;
        for (unsigned k = 0; k < LAB_TAIL; k++)
            free(host->tail[k]);
    }
    return status ? status : worst;
}
