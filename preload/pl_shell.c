/*
 * pl_shell.c - commands that libc has a shell run: system, popen, wordexp.
 *
 * A shell leaves alone what it merely inherits, so streams stay on their rails: a server that runs
 * a command now and then keeps them. A stream whose number the command's text names is handed over
 * first, since the shell (`echo hi >&5`), or the program that it is an argument of (`worker
 * --fd=5`), will use the socket without asking. What a script does whose name alone is in the text
 * is not known here.
 *
 * Application threads.
 */
#include "preload/pl_own.h"

#include "config/reason.h"
#include "rsock/sys.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include <wordexp.h>

enum { NUMBERS = 32, DIGITS = 9 /* of an int */ };

/* What a command names. any: there may be more, of which the text does not tell the number. */
struct named {
    bool any;
    int n;
    int fd[NUMBERS];
};

static bool digit(char c)
{
    return c >= '0' && c <= '9';
}

static bool in_word(char c)
{
    return isalnum((unsigned char)c) || c == '_' || c == '.';
}

/* Whether the digits from `from` to `to` stand for themselves: not those of eth0, 10.0.0.5, 5s or
 * log-5, but those of -u5. */
static bool stands_alone(const char *text, const char *from, const char *to)
{
    size_t before = (size_t)(from - text);
    char a = before > 0 ? from[-1] : ' ', b = before > 1 ? from[-2] : ' ';

    if (in_word(*to) && !(*to == '.' && !in_word(to[1]))) /* a full stop may end a sentence */
        return false;
    if (a == '-')
        return !in_word(b);
    return !in_word(a) || (isalpha((unsigned char)a) && b == '-');
}

static void number(struct named *names, const char *text, const char *from, const char *to)
{
    int fd = 0;

    if (to - from > DIGITS || !stands_alone(text, from, to))
        return;
    for (; from < to; from++)
        fd = fd * 10 + (*from - '0');
    for (int i = 0; i < names->n; i++)
        if (names->fd[i] == fd)
            return;
    if (names->n < NUMBERS)
        names->fd[names->n++] = fd;
    else
        names->any = true;
}

#define EXPANDING "$`*?[{"

/* Whether the shell makes something else of the rest of the word, or of the one after blanks: a
 * variable, say. */
static bool expands(const char *word)
{
    word += strspn(word, " \t");
    word += strcspn(word, EXPANDING " \t\n;|&<>()");
    return *word && strchr(EXPANDING, *word);
}

/* Quotes are not looked at: what they hide may be for another shell (`sh -c '...'`). */
static void name_all(struct named *names, const char *text)
{
    static const char folder[] = "/fd/"; /* of /dev and /proc */

    for (const char *at = text; *at; at++) {
        if (digit(*at)) {
            const char *from = at;

            at += strspn(at, "0123456789");
            number(names, text, from, at);
            at--;
        } else if (*at == '&' && at > text && (at[-1] == '<' || at[-1] == '>')) {
            names->any |= expands(at + 1);
        } else if (strncmp(at, folder, sizeof(folder) - 1) == 0) {
            names->any |= expands(at + sizeof(folder) - 1);
        }
    }
}

/* Those that the shell inherits begin to leave, then they are waited for, by one clock, as
 * before a spawn. */
static void hand_over(const struct named *names)
{
    uint64_t until = 0;

    for (int step = 0; step < 2; step++) {
        for (int i = 0; i < names->n; i++) {
            PL_HELD f = pl_get_stream(names->fd[i]);

            if (!f || sys_fcntl(names->fd[i], F_GETFD, 0) != 0)
                continue;
            if (step == 0) {
                fb_maybe_shared(f->stream);
                fb_pin(f->stream, RSN_SHARED, false);
            } else {
                fb_pin_by(f->stream, RSN_SHARED, until);
            }
        }
        until = fb_pin_time();
    }
}

/* Its close here is no longer its end. */
static void maybe_shared(struct pl_file *f, void *unused)
{
    (void)unused;
    if (f->kind == PL_STREAM && sys_fcntl(f->fd, F_GETFD, 0) == 0)
        fb_maybe_shared(f->stream);
}

static void before_shell(const char *command)
{
    struct named names = {.n = 0};

    if (!pl_is_owner())
        return;
    if (command)
        name_all(&names, command);
    if (names.any) {
        pl_before_spawn();
        return;
    }
    pl_each(maybe_shared, NULL);
    hand_over(&names);
    pl_made_inherited();
}

PL_EXPORT int system(const char *command)
{
    pl_ready();
    /* NULL only asks for a shell. */
    if (command)
        before_shell(command);
    return pl_real.system(command);
}

PL_EXPORT FILE *popen(const char *command, const char *mode)
{
    FILE *file;

    pl_ready();
    before_shell(command);
    file = pl_real.popen(command, mode);
    if (file)
        pl_drop_stale(fileno_unlocked(file));
    return file;
}

PL_ALIAS(_IO_popen, popen);

/* What $(...) in the words names is run by a shell. */
PL_EXPORT int wordexp(const char *restrict words, wordexp_t *restrict to, int flags)
{
    pl_ready();
    before_shell(words);
    return pl_real.wordexp(words, to, flags);
}
