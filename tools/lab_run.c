/*
 * lab_run.c - one lab, from the start of its hosts to their end.
 *
 * One loop over the channels of all hosts, the signals and the terminal. A host goes
 * through: booting -> ready (its network and device are there) -> running (all are
 * ready) -> ended (its command has) -> drained (all have, and its last output is here).
 * Whatever happens otherwise ends the whole lab, since a test that lost a host has no
 * result worth waiting for.
 *
 * What hosts say on the control channel is lab_ctl.c's; starting QEMU is lab_host.c's.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "lab_run.h"

#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "lab_ctl.h"
#include "lab_hub.h"
#include "lab_session.h"
#include "lab_tty.h"

/*
 * QEMU 7.2 can keep a translation of kernel code that was made while the kernel patched it
 * (text_poke_bp): a processor that comes there takes one breakpoint exception after another, for an
 * int3 that is not in its memory any more. The kernel patches most while it boots. So hosts that do
 * not boot are started once more; nothing has run on them yet.
 */
#define BOOT_FIRST_S 60
#define BOOT_S       180  /* generous: several labs may share two cores */
#define END_S        15   /* for a host that says nothing more */
#define PANIC_MS     2000 /* for the console's last lines after a panic */

_Static_assert(LAB_TOKEN_SIZE <= LAB_STRIP_MAX, "the token must be found");

static const enum lab_channel output_channels[] = {LAB_CONSOLE, LAB_OUT, LAB_ERR, LAB_CTL};

static void note_write(struct lab_session *s, int fd, int r)
{
    /* The loop finds itself that there is a signal (-EINTR), or that the time is over. */
    if (r == -ETIMEDOUT)
        s->given_up[fd] = true;
    else if (r < 0 && r != -EINTR && s->write_error == 0)
        s->write_error = r;
}

static void print(const struct lab_stream *stream, const char *text, size_t len)
{
    const struct lab_host *host = stream->host;
    struct lab_session *s = host->session;

    if (!s->given_up[stream->fd])
        note_write(s, stream->fd,
                   lab_print(stream->fd, lab_session_patience(s), s->raw, host->number, text, len));
}

static void print_line(void *arg, char *text, size_t len)
{
    print(arg, text, len);
}

static void console_line(void *arg, char *text, size_t len)
{
    struct lab_stream *stream = arg;
    struct lab_host *host = stream->host;
    struct lab_session *s = host->session;
    char **slot = &host->tail[host->tail_n % LAB_TAIL];

    while (len > 0 && (text[len - 1] == '\r' || text[len - 1] == ' '))
        text[--len] = 0;
    if (len == 0)
        return;
    if (s->options->verbose)
        print(stream, text, len);
    if (!host->panic_ms && memmem(text, len, "Kernel panic", 12))
        host->panic_ms = lab_now_ms();
    free(*slot);
    *slot = strndup(text, len);
    host->tail_n++;
}

static void ctl_line(void *arg, char *text, size_t len)
{
    struct lab_stream *stream = arg;

    (void)len;
    lab_ctl_line(stream->host, text);
}

static lab_line_fn *const line_fns[LAB_CHANNELS] = {
    [LAB_CONSOLE] = console_line,
    [LAB_CTL] = ctl_line,
    [LAB_OUT] = print_line,
    [LAB_ERR] = print_line,
};

static void channel_data(struct lab_host *host, enum lab_channel c, const char *data, size_t len)
{
    struct lab_session *s = host->session;
    struct lab_lines *lines = &host->lines[c];

    if (c == LAB_TTY) {
        if (!s->given_up[STDOUT_FILENO])
            note_write(s, STDOUT_FILENO,
                       lab_write(STDOUT_FILENO, lab_session_patience(s), data, len));
        return;
    }
    if (lab_lines_add(lines, data, len, line_fns[c], &host->streams[c]) < 0) {
        lab_host_fail(host, "out of memory");
        return;
    }
    if (c != LAB_OUT && c != LAB_ERR)
        return;
    if (lab_lines_strip(lines, s->token)) {
        host->drained[c] = true;
        lab_lines_end(lines, line_fns[c], &host->streams[c]);
        if (host->drained[LAB_OUT] && host->drained[LAB_ERR])
            host->state = LAB_DRAINED;
    }
}

static void channel_read(struct lab_host *host, enum lab_channel c, unsigned rounds);

/* QEMU has ended. What the host said before may still be in the other channels, for it is read only
 * as fast as we can print. */
static void console_ended(struct lab_host *host)
{
    channel_read(host, LAB_OUT, UINT_MAX);
    channel_read(host, LAB_ERR, UINT_MAX);
    if (host->state != LAB_DRAINED)
        lab_host_fail(host, host->panic_ms               ? "kernel panic"
                            : host->state == LAB_BOOTING ? "did not boot"
                                                         : "stopped by itself");
}

/* A host that still has output to hand over is not late, nor is one for which we had no time. */
static void still_ending(struct lab_session *s, enum lab_channel c, int64_t begun_ms)
{
    int64_t now = lab_now_ms();

    if (s->phase != LAB_PHASE_END)
        return;
    if (c != LAB_CONSOLE && c != LAB_CTL)
        s->deadline_ms = now + END_S * 1000;
    else
        s->deadline_ms += now - begun_ms;
}

/* Reads what is there, up to a limit that keeps one host from starving the others. */
static void channel_read(struct lab_host *host, enum lab_channel c, unsigned rounds)
{
    char data[16384];

    while (rounds-- > 0 && host->qemu.fd[c] >= 0) {
        int64_t begun_ms = lab_now_ms();
        ssize_t r = recv(host->qemu.fd[c], data, sizeof data, 0);

        if (r > 0) {
            channel_data(host, c, data, (size_t)r);
            still_ending(host->session, c, begun_ms);
            continue;
        }
        if (r < 0 && (errno == EAGAIN || errno == EINTR))
            return;
        close(host->qemu.fd[c]);
        host->qemu.fd[c] = -1;
        if (c == LAB_CONSOLE)
            console_ended(host);
    }
}

static void session_end_phase(struct lab_session *s)
{
    for (unsigned i = 0; i < s->options->hosts; i++)
        lab_ctl_send(&s->hosts[i], "end\n");
    s->phase = LAB_PHASE_END;
    s->deadline_ms = lab_now_ms() + END_S * 1000;
}

static bool all_at_least(const struct lab_session *s, enum lab_state state)
{
    for (unsigned i = 0; i < s->options->hosts; i++)
        if (s->hosts[i].state < state)
            return false;
    return true;
}

/* Goes to the next phase when all hosts are there. Returns whether the lab is over. */
static bool session_advance(struct lab_session *s)
{
    switch (s->phase) {
    case LAB_PHASE_BOOT:
        if (!all_at_least(s, LAB_READY))
            return false;
        for (unsigned i = 0; i < s->options->hosts; i++) {
            s->hosts[i].state = LAB_RUNNING;
            lab_ctl_send(&s->hosts[i], "start\n");
        }
        s->phase = LAB_PHASE_RUN;
        s->deadline_ms =
            s->options->timeout_s ? lab_now_ms() + (int64_t)s->options->timeout_s * 1000 : 0;
        if (s->options->shell)
            s->raw = lab_tty_raw(&s->tty);
        return false;
    case LAB_PHASE_RUN:
        if (s->options->shell ? s->hosts[0].state >= LAB_ENDED : all_at_least(s, LAB_ENDED))
            session_end_phase(s);
        return false;
    case LAB_PHASE_END:
        return all_at_least(s, LAB_DRAINED);
    }
    return false;
}

static void session_expired(struct lab_session *s)
{
    for (unsigned i = 0; i < s->options->hosts; i++) {
        struct lab_host *host = &s->hosts[i];

        if (s->phase == LAB_PHASE_BOOT && host->state < LAB_READY) {
            lab_host_fail(host, "did not boot");
            s->stood_still = true;
        } else if (s->phase == LAB_PHASE_RUN && host->state < LAB_ENDED) {
            lab_say(s, host->number, "no end after %u s", s->options->timeout_s);
            s->status = LAB_EXIT_TIMEOUT;
        } else if (s->phase == LAB_PHASE_END && host->state < LAB_DRAINED) {
            lab_say(s, host->number, "does not stop; its last output may be missing");
        }
    }
    s->over = true;
}

static int poll_timeout(const struct lab_session *s)
{
    int64_t until = s->deadline_ms;
    int64_t now = lab_now_ms();

    for (unsigned i = 0; i < s->options->hosts; i++) {
        int64_t panic = s->hosts[i].panic_ms;

        if (panic && (!until || panic + PANIC_MS < until))
            until = panic + PANIC_MS;
    }
    if (s->tty.ended && s->tty.len == 0 && (!until || s->tty.again_ms < until))
        until = s->tty.again_ms;
    if (!until)
        return -1;
    return until <= now ? 0 : (int)(until - now);
}

static void check_time(struct lab_session *s)
{
    int64_t now = lab_now_ms();

    for (unsigned i = 0; i < s->options->hosts; i++) {
        struct lab_host *host = &s->hosts[i];

        if (host->panic_ms && now >= host->panic_ms + PANIC_MS && !s->over)
            lab_host_fail(host, "kernel panic");
    }
    if (!s->over && s->deadline_ms && now >= s->deadline_ms)
        session_expired(s);
}

static void read_signal(struct lab_session *s)
{
    struct signalfd_siginfo info;

    if (read(s->signal_fd, &info, sizeof info) != (ssize_t)sizeof info)
        return;
    s->signal = (int)info.ssi_signo;
    s->status = 128 + s->signal;
    s->over = true;
}

static void read_size(struct lab_session *s)
{
    struct signalfd_siginfo info;

    if (read(s->size_fd, &info, sizeof info) == (ssize_t)sizeof info)
        lab_ctl_send_size(s);
}

static void session_loop(struct lab_session *s)
{
    while (!s->over) {
        struct pollfd pfd[LAB_MAX_HOSTS * LAB_CHANNELS + LAB_TTY_FDS + 2];
        unsigned hosts = s->options->hosts;
        unsigned n = 0;

        for (unsigned i = 0; i < hosts; i++)
            for (int c = 0; c < LAB_CHANNELS; c++)
                pfd[n++] = (struct pollfd){.fd = s->hosts[i].qemu.fd[c], .events = POLLIN};
        pfd[n++] = (struct pollfd){.fd = s->size_fd, .events = POLLIN};
        pfd[n++] = (struct pollfd){.fd = s->signal_fd, .events = POLLIN};
        lab_tty_poll(&s->tty, s->phase == LAB_PHASE_RUN && s->options->shell,
                     s->hosts[0].qemu.fd[LAB_TTY], pfd + n);
        if (poll(pfd, n + LAB_TTY_FDS, poll_timeout(s)) < 0 && errno != EINTR) {
            lab_say(s, 0, "poll: %s", strerror(errno));
            s->status = LAB_EXIT_FAILED;
            return;
        }
        if (pfd[n - 1].revents)
            read_signal(s);
        if (pfd[n - 2].revents)
            read_size(s);
        lab_tty_ready(&s->tty, s->hosts[0].qemu.fd[LAB_TTY], pfd + n, lab_now_ms());
        for (unsigned i = 0; i < hosts && !s->over; i++)
            for (unsigned c = 0; c < LAB_CHANNELS; c++)
                if (pfd[i * LAB_CHANNELS + c].revents)
                    channel_read(&s->hosts[i], c, 8);
        check_time(s);
        if (s->write_error) {
            s->status = s->write_error == -EPIPE ? 128 + SIGPIPE : LAB_EXIT_FAILED;
            if (s->write_error != -EPIPE)
                lab_say(s, 0, "the output cannot be written: %s", strerror(-s->write_error));
            return;
        }
        if (!s->over)
            s->over = session_advance(s);
    }
}

/* Prints what the hosts had said before a lab ended out of turn; after a signal nobody waits. */
static void session_flush(struct lab_session *s)
{
    for (unsigned i = 0; i < s->options->hosts; i++) {
        struct lab_host *host = &s->hosts[i];

        for (unsigned k = 0; k < sizeof output_channels / sizeof *output_channels; k++) {
            enum lab_channel c = output_channels[k];

            if (s->signal == 0 && s->write_error == 0)
                channel_read(host, c, 64);
            if (c != LAB_CTL && s->signal == 0)
                lab_lines_end(&host->lines[c], line_fns[c], &host->streams[c]);
            else
                free(host->lines[c].data);
        }
    }
}

static int session_start(struct lab_session *s)
{
    unsigned hosts = s->options->hosts;
    int near[LAB_MAX_HOSTS];
    int far[LAB_MAX_HOSTS] = {-1, -1, -1, -1};
    int r = 0;

    for (unsigned i = 0; hosts > 1 && i < hosts; i++) {
        int pair[2];

        if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) < 0) {
            r = -errno;
            while (i-- > 0) {
                close(near[i]);
                close(far[i]);
            }
            return r;
        }
        near[i] = pair[0];
        far[i] = pair[1];
    }
    for (unsigned i = 0; i < hosts && r == 0; i++)
        r = lab_host_start(&s->hosts[i].qemu, i + 1, s->options, s->image, s->scratch, far[i]);
    for (unsigned i = 0; i < hosts; i++)
        if (far[i] >= 0)
            close(far[i]);
    /* After the forks: the hub has a thread. */
    if (hosts > 1) {
        s->hub = lab_hub_start(near, hosts);
        if (!s->hub && r == 0)
            r = -errno;
    }
    return r;
}

static void session_init(struct lab_session *s, unsigned boot_s)
{
    unsigned char bytes[16];

    if (getrandom(bytes, sizeof bytes, 0) != (ssize_t)sizeof bytes)
        memset(bytes, 0x5a, sizeof bytes);
    for (size_t i = 0; i < sizeof bytes; i++)
        snprintf(s->token + 2 * i, 3, "%02x", bytes[i]);
    s->barriers.hosts = s->options->hosts;
    s->deadline_ms = lab_now_ms() + (int64_t)boot_s * 1000;
    for (unsigned i = 0; i < LAB_MAX_HOSTS; i++) {
        struct lab_host *host = &s->hosts[i];

        host->session = s;
        host->number = i + 1;
        for (int c = 0; c < LAB_CHANNELS; c++) {
            host->qemu.fd[c] = -1;
            host->streams[c].host = host;
            host->streams[c].fd = c == LAB_OUT ? STDOUT_FILENO : STDERR_FILENO;
        }
    }
}

/* What lab_run does, once. *again: before, that it is the second time; after, that a host said
 * nothing until boot_s seconds had passed. */
static int run_once(const struct lab_options *options, const struct lab_image *image,
                    const char *scratch, const sigset_t *caught, unsigned boot_s, int *signal_out,
                    bool *again)
{
    struct lab_session *s = calloc(1, sizeof *s);
    sigset_t size;
    int status, r;

    *signal_out = 0;
    if (!s)
        return LAB_EXIT_FAILED;
    s->options = options;
    s->image = image;
    s->scratch = scratch;
    session_init(s, boot_s);
    signal(SIGPIPE, SIG_IGN);
    s->signal_fd = signalfd(-1, caught, SFD_CLOEXEC | SFD_NONBLOCK);
    if (*again)
        lab_say(s, 0, "starting the hosts once more");
    sigemptyset(&size);
    sigaddset(&size, SIGWINCH);
    s->size_fd = options->shell ? signalfd(-1, &size, SFD_CLOEXEC | SFD_NONBLOCK) : -1;
    r = s->signal_fd < 0 || (options->shell && s->size_fd < 0) ? -errno : session_start(s);
    if (r < 0) {
        lab_say(s, 0, "cannot start: %s", strerror(-r));
        s->status = LAB_EXIT_FAILED;
    } else {
        session_loop(s);
    }
    lab_tty_restore(&s->tty);
    s->raw = false;
    session_flush(s);
    for (unsigned i = 0; i < options->hosts; i++)
        lab_host_stop(&s->hosts[i].qemu);
    lab_hub_stop(s->hub);
    status = lab_session_report(s);
    *signal_out = s->signal;
    *again = s->stood_still;
    if (s->signal_fd >= 0)
        close(s->signal_fd);
    if (s->size_fd >= 0)
        close(s->size_fd);
    free(s);
    return status;
}

int lab_run(const struct lab_options *options, const struct lab_image *image, const char *scratch,
            const sigset_t *caught, int *signal_out)
{
    const char *test = getenv("RAILSOCK_TEST_BOOT_S"); /* tests/lab_selftest.sh's */
    bool again = false;
    int status = run_once(options, image, scratch, caught,
                          test ? (unsigned)atoi(test) : BOOT_FIRST_S, signal_out, &again);

    if (!again)
        return status;
    return run_once(options, image, scratch, caught, BOOT_S, signal_out, &again);
}
