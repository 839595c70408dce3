/*
 * lab_ctl.c - our side of the control channel.
 *
 * A table of what a host may say. Each entry checks its words, because a command under
 * test can write to the channel as well.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "lab_ctl.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#define WORDS_MAX 4
#define SEND_MS   30000 /* until a host that takes nothing is given up */

static void send_bytes(struct lab_host *host, const char *data, size_t len)
{
    int fd = host->qemu.fd[LAB_CTL];
    ssize_t r = fd < 0 ? -1 : 0;

    /* All but long command lines fits into a socket's buffer. */
    while (r >= 0 && len > 0) {
        struct pollfd pfd[2] = {{.fd = fd, .events = POLLOUT},
                                {.fd = host->session->signal_fd, .events = POLLIN}};

        r = send(fd, data, len, MSG_NOSIGNAL);
        if (r > 0) {
            data += r;
            len -= (size_t)r;
        } else if (r < 0 && errno == EAGAIN) {
            r = poll(pfd, 2, SEND_MS) == 0 ? -1 : 0;
            if (pfd[1].revents) /* the loop finds the signal itself */
                return;
        }
    }
    if (len > 0 && host->state != LAB_DRAINED)
        lab_host_fail(host, "does not take orders");
}

void lab_ctl_send(struct lab_host *host, const char *text)
{
    send_bytes(host, text, strlen(text));
}

void lab_ctl_send_size(struct lab_session *s)
{
    struct winsize size;
    char text[64];

    if (ioctl(STDIN_FILENO, TIOCGWINSZ, &size) < 0 || size.ws_row == 0)
        return;
    snprintf(text, sizeof text, "size %u %u\n", size.ws_row, size.ws_col);
    lab_ctl_send(&s->hosts[0], text);
}

/* A number from 0 to max, or -1. */
static int number_of(const char *word, int max)
{
    char *end;
    long value;

    if (!word || *word < '0' || *word > '9')
        return -1;
    errno = 0;
    value = strtol(word, &end, 10);
    if (errno || *end || value > max)
        return -1;
    return (int)value;
}

static struct lab_host *host_of(struct lab_session *s, const char *word)
{
    int number = number_of(word, (int)s->options->hosts);

    return number >= 1 ? &s->hosts[number - 1] : NULL;
}

static void send_go(struct lab_host *host, int pid, int status, const char *why)
{
    char text[256];

    snprintf(text, sizeof text, "go %d %d %s\n", pid, status, why);
    lab_ctl_send(host, text);
}

static void release_waiter(void *arg, const struct lab_waiter *waiter, unsigned missing)
{
    struct lab_session *s = arg;
    char why[128] = "";

    if (missing)
        snprintf(why, sizeof why, "lab-barrier %s: the command of host %u has ended", waiter->name,
                 missing);
    send_go(&s->hosts[waiter->host], waiter->pid, missing ? 1 : 0, why);
}

static bool on_hello(struct lab_host *host, char **words)
{
    struct lab_session *s = host->session;
    char head[32];
    size_t len;
    char *text;

    (void)words;
    text = lab_config_make(host->number, s->options, s->image, s->scratch, s->token, &len);
    if (!text) {
        lab_host_fail(host, strerror(errno));
        return true;
    }
    snprintf(head, sizeof head, "config %zu\n", len);
    lab_ctl_send(host, head);
    send_bytes(host, text, len);
    free(text);
    return true;
}

static bool on_up(struct lab_host *host, char **words)
{
    (void)words;
    if (host->state != LAB_BOOTING)
        return false;
    host->state = LAB_READY;
    if (host->session->options->shell && host->number == 1)
        lab_ctl_send_size(host->session);
    return true;
}

static bool on_ended(struct lab_host *host, char **words)
{
    struct lab_session *s = host->session;
    int status = number_of(words[1], 255);

    if (status < 0 || host->state != LAB_RUNNING)
        return false;
    host->status = status;
    host->state = LAB_ENDED;
    lab_barrier_ended(&s->barriers, host->number - 1, release_waiter, s);
    return true;
}

static bool on_barrier(struct lab_host *host, char **words)
{
    struct lab_session *s = host->session;
    struct lab_waiter waiter = {.host = host->number - 1, .pid = number_of(words[1], 1 << 30)};
    int r;

    if (waiter.pid < 0 || !words[2] || words[3])
        return false;
    r = -ENAMETOOLONG;
    if (strlen(words[2]) < sizeof waiter.name) {
        strcpy(waiter.name, words[2]);
        r = lab_barrier_join(&s->barriers, &waiter, release_waiter, s);
    }
    if (r < 0)
        send_go(host, waiter.pid, 125, strerror(-r));
    return true;
}

static bool on_left(struct lab_host *host, char **words)
{
    int pid = number_of(words[1], 1 << 30);

    if (pid < 0)
        return false;
    lab_barrier_left(&host->session->barriers, host->number - 1, pid);
    return true;
}

static bool on_on(struct lab_host *host, char **words)
{
    struct lab_host *target = host_of(host->session, words[2]);
    int pid = number_of(words[1], 1 << 30);
    char *text;

    if (pid < 0 || !words[3])
        return false;
    if (!target) {
        send_go(host, pid, 125, "on: no such host");
        return true;
    }
    if (asprintf(&text, "run %u %d %s\n", host->number, pid, words[3]) < 0)
        return false;
    lab_ctl_send(target, text);
    free(text);
    return true;
}

static bool on_ran(struct lab_host *host, char **words)
{
    struct lab_host *asker = host_of(host->session, words[1]);
    int pid = number_of(words[2], 1 << 30);
    int status = number_of(words[3], 255);

    if (!asker || pid < 0 || status < 0)
        return false;
    send_go(asker, pid, status, "");
    return true;
}

static const struct {
    const char *verb;
    bool (*act)(struct lab_host *host, char **words);
} verbs[] = {
    {"hello", on_hello}, {"up", on_up},   {"ended", on_ended}, {"barrier", on_barrier},
    {"on", on_on},       {"ran", on_ran}, {"left", on_left},
};

void lab_ctl_line(struct lab_host *host, char *text)
{
    char *words[WORDS_MAX + 2] = {NULL};
    char *save = NULL;
    unsigned n = 0;

    if (strncmp(text, "fail ", 5) == 0) {
        lab_host_fail(host, text + 5);
        return;
    }
    for (char *w = strtok_r(text, " ", &save); w && n <= WORDS_MAX; w = strtok_r(NULL, " ", &save))
        words[n++] = w;
    for (size_t i = 0; n > 0 && i < sizeof verbs / sizeof *verbs; i++)
        if (strcmp(words[0], verbs[i].verb) == 0 && verbs[i].act(host, words))
            return;
    lab_host_fail(host, "nonsense on the control channel");
}
