/*
 * stat_watch.c - the table in place, on the terminal's second screen. The signals that end it are
 * blocked and read as events, so that the terminal is given back in every case but SIGKILL.
 */
#include "tools/stat_watch.h"

#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/signalfd.h>
#include <termios.h>
#include <unistd.h>

#define ENTER "\033[?1049h\033[?25l" /* second screen, no cursor */
#define LEAVE "\033[?25h\033[?1049l"
#define HOME  "\033[H"
#define REST  "\033[K" /* clears the line from here on */
#define BELOW "\033[J"

struct screen {
    struct termios was;
    bool keys; /* standard input is a terminal */
    int signals;
    sigset_t mask;
};

static bool begin(struct screen *s)
{
    struct termios now;
    sigset_t set;

    sigemptyset(&set);
    sigaddset(&set, SIGINT);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGHUP);
    sigaddset(&set, SIGQUIT);
    sigaddset(&set, SIGWINCH);
    s->signals = signalfd(-1, &set, SFD_CLOEXEC);
    if (s->signals < 0 || sigprocmask(SIG_BLOCK, &set, &s->mask) < 0)
        return false;
    s->keys = tcgetattr(STDIN_FILENO, &s->was) == 0;
    if (s->keys) {
        now = s->was;
        now.c_lflag &= ~(tcflag_t)(ICANON | ECHO);
        now.c_cc[VMIN] = 1;
        now.c_cc[VTIME] = 0;
        now.c_cc[VSUSP] = _POSIX_VDISABLE; /* a shell would come back on the second screen */
        tcsetattr(STDIN_FILENO, TCSADRAIN, &now);
    }
    fputs(ENTER, stdout);
    return true;
}

static void finish(struct screen *s)
{
    fputs(LEAVE, stdout);
    fflush(stdout);
    if (s->keys)
        tcsetattr(STDIN_FILENO, TCSADRAIN, &s->was);
    close(s->signals);
    sigprocmask(SIG_SETMASK, &s->mask, NULL);
}

/*
 * What the terminal has room for: the beginning of each of the first lines, and nothing below. What
 * was there is cleared before the text: behind one as long as the line the cursor still stands on
 * the last character, which would be cleared.
 */
static void put_lines(const char *text, unsigned columns, unsigned lines)
{
    unsigned i = 0;

    for (; *text && i < lines; i++) {
        size_t n = strcspn(text, "\n"), cut = n < columns ? n : columns;

        /* Not in the middle of a character. */
        while (cut < n && cut && ((unsigned char)text[cut] & 0xc0) == 0x80)
            cut--;
        printf("%s%s%.*s", i ? "\n" : "", i + 1 < lines ? REST : BELOW, (int)cut, text);
        text += n + (text[n] == '\n');
    }
    if (i < lines)
        fputs("\n" BELOW, stdout);
}

static void show(const struct stat_list *list, const struct stat_view *view)
{
    struct winsize w = {0};
    char why[ROOM_MISSING];
    const char *missing = stat_missing(list, why);
    struct stat_totals t;
    char *text = NULL;
    size_t n;
    FILE *f = open_memstream(&text, &n);

    if (!f)
        return;
    if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &w) < 0 || !w.ws_col || !w.ws_row)
        w = (struct winsize){.ws_row = 24, .ws_col = 80};
    stat_total(list, &t);
    fprintf(f,
            "%" PRIu64 " connection%s: %" PRIu64 " tcp, %" PRIu64 " shm, %" PRIu64
            " verbs; sent %" PRIu64 " and received %" PRIu64 " bytes/s; q ends\n",
            t.connections, t.connections == 1 ? "" : "s", t.path[FB_PATH_TCP], t.path[FB_PATH_SHM],
            t.path[FB_PATH_VERBS], t.tx_rate, t.rx_rate);
    fprintf(f, "%s%s\n", missing ? STAT_MISSING : "", missing ? missing : "");
    stat_print_table(f, list, view);
    fclose(f);
    fputs(HOME, stdout);
    put_lines(text, w.ws_col, w.ws_row);
    fflush(stdout);
    free(text);
}

static uint64_t now_ns(void)
{
    struct timespec ts;

    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

/* Until the next reading is due, at `until`. -1: it is; 0: the user has seen enough; else the
 * signal that ends us, or SIGWINCH. */
static int wait_for(struct screen *s, uint64_t until)
{
    struct pollfd p[2] = {{s->signals, POLLIN, 0}, {s->keys ? STDIN_FILENO : -1, POLLIN, 0}};

    for (;;) {
        uint64_t now = now_ns(), left = now < until ? until - now : 0;
        struct timespec ts = {(time_t)(left / 1000000000), (long)(left % 1000000000)};
        struct signalfd_siginfo info;
        int n = ppoll(p, 2, &ts, NULL);
        char key;

        if (n == 0)
            return -1;
        if (p[0].revents && read(s->signals, &info, sizeof(info)) == sizeof(info))
            return info.ssi_signo == SIGINT ? 0 : (int)info.ssi_signo;
        if (p[1].revents) {
            if (read(STDIN_FILENO, &key, 1) != 1)
                return 0; /* the terminal has gone */
            if (key == 'q' || key == 'Q')
                return 0;
        }
    }
}

int stat_watch(const struct stat_filter *filter, struct stat_view view, struct timespec interval)
{
    uint64_t step = (uint64_t)interval.tv_sec * 1000000000u + (uint64_t)interval.tv_nsec;
    struct stat_list before = {0}, now;
    uint64_t at = 0, last = 0;
    struct screen s;
    int why = -1, err = 0;

    if (!isatty(STDOUT_FILENO)) {
        fputs("railsock stat: --watch needs a terminal; without one, --rate shows rates once\n",
              stderr);
        return 2;
    }
    if (!begin(&s)) {
        fprintf(stderr, "railsock stat: %s\n", strerror(errno));
        return 1;
    }
    view.by_rate = view.rates = true;
    while (why < 0 || why == SIGWINCH) {
        err = stat_take(filter, true, true, &now);
        if (err < 0)
            break;
        last = at;
        at = now_ns();
        if (last)
            stat_rates(&before, &now, at - last);
        show(&now, &view);
        stat_free(&before);
        before = now;
        why = wait_for(&s, at + step);
    }
    stat_free(&before);
    finish(&s);
    if (err < 0) /* not on the screen that is gone now */
        stat_not_taken(err);
    if (why > 0) { /* as if we had not asked for it */
        signal(why, SIG_DFL);
        raise(why);
    }
    return why == 0 ? 0 : 1;
}
