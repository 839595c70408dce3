/*
 * env.c - RAILSOCK_* to struct cfg, from one table. Runs once, in the library's
 * constructor, before there is a second thread of ours. No malloc, no stdio stream.
 */
#include "config/env.h"

#include "config/log.h"
#include "config/raw.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <unistd.h>

#define RING_MIN 4096u
#define RING_MAX (64u << 20)

#define DEFAULTS                                                                        \
    {                                                                                   \
        .board_calls = 8, .board_bytes = 64 << 10, .spin_ns = 20000, .spin_auto = true, \
        .max_rails = 1024, .max_memory = 512ull << 20, .idle_ns = 60000000000ull,       \
        .stall_ns = 50000000, .uring = true, .log_level = CFG_LOG_ERROR,                \
    }

struct cfg cfg = DEFAULTS;

/* ---- words and numbers */

/* The place of word in the NULL-terminated list, or -1. */
static int one_of(const char *word, const char *const *list)
{
    for (int i = 0; list[i]; i++)
        if (strcmp(word, list[i]) == 0)
            return i;
    return -1;
}

/* Decimal digits, then k or m if unit is given, which tells the factor. False: not that, or
 * above max. */
static bool number(const char *text, uint64_t max, uint64_t *value, uint64_t *unit)
{
    char *end;

    if (!isdigit((unsigned char)*text))
        return false;
    errno = 0;
    *value = strtoull(text, &end, 10);
    if (errno)
        return false;
    if (unit) {
        *unit = *end == 'k' || *end == 'K' ? 1 << 10 : *end == 'm' || *end == 'M' ? 1 << 20 : 1;
        end += *unit != 1;
        if (*value > max / *unit)
            return false;
        *value *= *unit;
    }
    return !*end && *value <= max;
}

/* ---- one parser for each setting: false leaves the setting as it was */

static bool parse_mode(const char *text, struct cfg *c)
{
    int i = one_of(text, (const char *const[]){"auto", "tcp", "rail", NULL});

    if (i < 0)
        return false;
    c->mode = (enum cfg_mode)i;
    if (c->mode == CFG_RAIL)
        c->board_calls = 1;
    return true;
}

static bool parse_wire(const char *text, struct cfg *c)
{
    int i = one_of(text, (const char *const[]){"auto", "shm", "verbs", NULL});

    if (i < 0)
        return false;
    c->wire = (enum cfg_wire)i;
    return true;
}

static bool parse_board(const char *text, struct cfg *c)
{
    uint64_t value, unit;

    if (strcmp(text, "never") == 0) {
        c->board_never = true;
    } else if (strcmp(text, "eager") == 0) {
        c->board_calls = 1;
    } else if (strncmp(text, "after=", 6) == 0) {
        if (!number(text + 6, UINT32_MAX - 1, &value, &unit) || value == 0)
            return false;
        c->board_calls = unit == 1 ? (uint32_t)value : UINT32_MAX;
        c->board_bytes = unit == 1 ? UINT64_MAX : value;
    } else {
        return false;
    }
    return true;
}

static bool parse_spin(const char *text, struct cfg *c)
{
    uint64_t us;

    if (strcmp(text, "auto") == 0) /* the default */
        return true;
    if (!number(text, 1000000, &us, NULL))
        return false;
    c->spin_ns = (uint32_t)us * 1000;
    c->spin_auto = false;
    return true;
}

static bool parse_ring(const char *text, struct cfg *c)
{
    uint64_t bytes, unit;
    uint32_t size = RING_MIN;

    if (!number(text, RING_MAX, &bytes, &unit))
        return false;
    while (size < bytes)
        size *= 2;
    c->ring = bytes ? size : 0;
    return true;
}

/* A whole number up to max, which stands for so many units. */
static bool scaled(const char *text, uint64_t max, uint64_t unit, uint64_t *setting)
{
    uint64_t n;

    if (!number(text, max, &n, NULL))
        return false;
    *setting = n * unit;
    return true;
}

static bool parse_rails(const char *text, struct cfg *c)
{
    return scaled(text, 100000, 1, &c->max_rails);
}

static bool parse_memory(const char *text, struct cfg *c)
{
    uint64_t bytes, unit;

    if (!number(text, UINT64_MAX >> 1, &bytes, &unit))
        return false;
    c->max_memory = bytes;
    return true;
}

static bool parse_idle(const char *text, struct cfg *c)
{
    return scaled(text, 86400, 1000000000u, &c->idle_ns);
}

static bool parse_stall(const char *text, struct cfg *c)
{
    return scaled(text, 60000, 1000000u, &c->stall_ns);
}

static bool parse_switch(const char *text, struct cfg *c)
{
    return scaled(text, UINT32_MAX, 1, &c->test_switch);
}

static bool parse_progress(const char *text, struct cfg *c)
{
    int i = one_of(text, (const char *const[]){"auto", "epoll", NULL});

    if (i < 0)
        return false;
    c->uring = i == 0;
    return true;
}

static bool parse_seccomp(const char *text, struct cfg *c)
{
    int i = one_of(text, (const char *const[]){"tcp", "rail", NULL});

    if (i < 0)
        return false;
    c->seccomp_rail = i == 1;
    return true;
}

/* A relative file belongs to where the program started: it may change directory later. */
static bool parse_log(const char *text, struct cfg *c)
{
    const char *colon = strchr(text, ':');
    char word[8], dir[sizeof(c->log_file)] = "";
    size_t n = colon ? (size_t)(colon - text) : strlen(text);
    int level, len = 0;

    if (n >= sizeof(word))
        return false;
    memcpy(word, text, n);
    word[n] = '\0';
    level = one_of(word, (const char *const[]){"error", "warn", "info", "debug", NULL});
    if (level < 0 || (colon && !colon[1]))
        return false;
    if (colon) {
        if (colon[1] != '/' && !getcwd(dir, sizeof(dir)))
            return false;
        if (strlen(dir) + 1 + strlen(colon + 1) >= sizeof(c->log_file))
            return false;
        len =
            snprintf(c->log_file, sizeof(c->log_file), "%s%s%s", dir, dir[0] ? "/" : "", colon + 1);
    }
    c->log_file[len] = '\0';
    c->log_level = level + CFG_LOG_ERROR;
    return true;
}

/* In this order: an explicit RAILSOCK_BOARD stands above what the mode implies. */
static const struct setting {
    const char *name;
    bool (*parse)(const char *, struct cfg *);
    const char *expected, *used;
} settings[] = {
    {"RAILSOCK_MODE", parse_mode, "auto, tcp or rail", "auto"},
    {"RAILSOCK_WIRE", parse_wire, "auto, shm or verbs", "auto"},
    {"RAILSOCK_BOARD", parse_board, "eager, after=CALLS, after=BYTESk, after=BYTESm or never",
     NULL},
    {"RAILSOCK_SPIN", parse_spin, "microseconds, 0 to 1000000, or auto", "auto"},
    {"RAILSOCK_RING", parse_ring, "bytes, 4k to 64m, or 0 for the wire's own", "0"},
    {"RAILSOCK_RAILS", parse_rails, "rails at once, 0 to 100000", "1024"},
    {"RAILSOCK_MEMORY", parse_memory, "bytes of rings, or with k or m", "512m"},
    {"RAILSOCK_IDLE", parse_idle, "seconds, 0 to 86400, 0 = never", "60"},
    {"RAILSOCK_STALL", parse_stall, "milliseconds, 0 to 60000, 0 = never", "50"},
    {"RAILSOCK_SECCOMP", parse_seccomp, "tcp or rail", "tcp"},
    {"RAILSOCK_PROGRESS", parse_progress, "auto or epoll", "auto"},
    {"RAILSOCK_TEST_SWITCH", parse_switch, "a seed, 0 to 4294967295", "0"},
    {"RAILSOCK_LOG", parse_log,
     "error, warn, info or debug, then :FILE if not to stderr (a path below 200 bytes)", "error"},
};

static void report(const struct setting *s, const char *value)
{
    char line[400];
    const char *used = s->used ? s->used : cfg.board_calls == 1 ? "eager" : "after=8";
    size_t n = (size_t)snprintf(line, sizeof(line), "railsock: %s=%.80s%s: expected %s; using %s",
                                s->name, value, strlen(value) > 80 ? "..." : "", s->expected, used);

    if (n > sizeof(line) - 1)
        n = sizeof(line) - 1;
    for (size_t i = 0; i < n; i++)
        if ((unsigned char)line[i] < ' ' || line[i] == 0x7f)
            line[i] = '?';
    line[n++] = '\n';
    cfg_raw_write(STDERR_FILENO, line, n);
}

const char *cfg_expected(const char *name, const char *value)
{
    struct cfg scratch = DEFAULTS;

    for (size_t i = 0; i < sizeof(settings) / sizeof(settings[0]); i++)
        if (strcmp(name, settings[i].name) == 0)
            return settings[i].parse(value, &scratch) ? NULL : settings[i].expected;
    return "no such setting";
}

void cfg_init(void)
{
    int saved = errno;

    cfg = (struct cfg)DEFAULTS;
    if (getauxval(AT_SECURE)) {
        /* Its caller chose the environment, with fewer rights than it has. */
        cfg.mode = CFG_TCP;
        cfg.board_never = true;
    } else {
        for (size_t i = 0; i < sizeof(settings) / sizeof(settings[0]); i++) {
            const struct setting *s = &settings[i];
            const char *value = getenv(s->name);

            if (value && *value && !s->parse(value, &cfg))
                report(s, value);
        }
    }
    cfg_log_level = cfg.log_level;
    errno = saved;
}
