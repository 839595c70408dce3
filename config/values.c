/*
 * values.c - see values.h. No malloc, no stdio stream: it runs in the library's constructor, and
 * at a process's first connection.
 */
#include "config/values.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define RING_MIN 4096u
#define RING_MAX (64u << 20)
#define KIB      (UINT64_C(1) << 10)
#define MIB      (UINT64_C(1) << 20)
#define GIB      (UINT64_C(1) << 30)

const struct cfg_stream cfg_stream_defaults = CFG_STREAM_DEFAULTS;

/* ---- words and numbers */

static const char *const modes[] = {"auto", "tcp", "rail", NULL};
static const char *const wires[] = {"auto", "shm", "verbs", NULL};

/* The place of word in the NULL-terminated list, or -1. */
static int one_of(const char *word, const char *const *list)
{
    for (int i = 0; list[i]; i++)
        if (strcmp(word, list[i]) == 0)
            return i;
    return -1;
}

/* What a letter behind a number stands for; 1: none of them. */
static uint64_t unit_of(char letter)
{
    switch (letter) {
    case 'k':
    case 'K':
        return KIB;
    case 'm':
    case 'M':
        return MIB;
    case 'g':
    case 'G':
        return GIB;
    default:
        return 1;
    }
}

/* Decimal digits, then a letter for a unit if unit is given: the largest that it may be, and on
 * return the one that it is. False: not that, or above max. */
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
        uint64_t is = unit_of(*end);

        if (is > *unit || *value > max / is)
            return false;
        end += is != 1;
        *value *= is;
        *unit = is;
    }
    return !*end && *value <= max;
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

static void put_size(uint64_t bytes, char *text, size_t size)
{
    if (bytes && bytes % MIB == 0)
        snprintf(text, size, "%" PRIu64 "m", bytes / MIB);
    else if (bytes && bytes % KIB == 0)
        snprintf(text, size, "%" PRIu64 "k", bytes / KIB);
    else
        snprintf(text, size, "%" PRIu64, bytes);
}

/* ---- one parser for each setting: false leaves the setting as it was */

static bool parse_mode(const char *text, struct cfg_stream *s)
{
    int i = one_of(text, modes);

    if (i < 0)
        return false;
    s->mode = (enum cfg_mode)i;
    return true;
}

static bool parse_wire(const char *text, struct cfg_stream *s)
{
    int i = one_of(text, wires);

    if (i < 0)
        return false;
    s->wire = (enum cfg_wire)i;
    return true;
}

static void set_board(struct cfg_stream *s, uint32_t calls, uint64_t bytes)
{
    s->board_never = false;
    s->board_calls = calls;
    s->board_bytes = bytes;
}

static void set_eager(struct cfg_stream *s)
{
    set_board(s, 1, cfg_stream_defaults.board_bytes);
}

static bool parse_board(const char *text, struct cfg_stream *s)
{
    uint64_t value, unit = MIB;

    if (strcmp(text, "auto") == 0) {
        set_board(s, cfg_stream_defaults.board_calls, cfg_stream_defaults.board_bytes);
    } else if (strcmp(text, "never") == 0) {
        set_board(s, cfg_stream_defaults.board_calls, cfg_stream_defaults.board_bytes);
        s->board_never = true;
    } else if (strcmp(text, "eager") == 0) {
        set_eager(s);
    } else if (strncmp(text, "after=", 6) == 0) {
        if (!number(text + 6, UINT32_MAX - 1, &value, &unit) || value == 0)
            return false;
        set_board(s, unit == 1 ? (uint32_t)value : UINT32_MAX, unit == 1 ? UINT64_MAX : value);
    } else {
        return false;
    }
    return true;
}

static bool parse_spin(const char *text, struct cfg_stream *s)
{
    uint64_t us;

    if (strcmp(text, "auto") == 0) {
        s->spin_ns = cfg_stream_defaults.spin_ns;
        s->spin_auto = true;
        return true;
    }
    if (!number(text, 1000000, &us, NULL))
        return false;
    s->spin_ns = (uint32_t)us * 1000;
    s->spin_auto = false;
    return true;
}

static bool parse_ring(const char *text, struct cfg_stream *s)
{
    uint64_t bytes, unit = MIB;
    uint32_t size = RING_MIN;

    if (!number(text, RING_MAX, &bytes, &unit))
        return false;
    while (size < bytes)
        size *= 2;
    s->ring = bytes ? size : 0;
    return true;
}

static bool parse_rails(const char *text, struct cfg_stream *s)
{
    return scaled(text, 100000, 1, &s->max_rails);
}

static bool parse_memory(const char *text, struct cfg_stream *s)
{
    uint64_t bytes, unit = GIB;

    if (!number(text, UINT64_MAX >> 1, &bytes, &unit))
        return false;
    s->max_memory = bytes;
    return true;
}

static bool parse_idle(const char *text, struct cfg_stream *s)
{
    return scaled(text, 86400, 1000000000u, &s->idle_ns);
}

static bool parse_stall(const char *text, struct cfg_stream *s)
{
    return scaled(text, 60000, 1000000u, &s->stall_ns);
}

static bool parse_tos(const char *text, struct cfg_stream *s)
{
    uint64_t tos;

    if (!number(text, 255, &tos, NULL))
        return false;
    s->tos = (int16_t)tos;
    return true;
}

static bool parse_site_key(const char *text, struct cfg_stream *s)
{
    if (!*text)
        return false;
    s->key_file = strcmp(text, "none") == 0 ? NULL : text;
    s->site_key = NULL;
    return true;
}

static const struct {
    const char *name;
    bool (*parse)(const char *, struct cfg_stream *);
    const char *expected;
} keys[CFG_KEYS] = {
    [CFG_MODE] = {"mode", parse_mode, "auto, tcp or rail"},
    [CFG_WIRE] = {"wire", parse_wire, "auto, shm or verbs"},
    [CFG_BOARD] =
        {"board", parse_board,
         "auto, eager, after=CALLS, after=BYTESk or after=BYTESm (from 1, below 4 GiB), or never"},
    [CFG_SPIN] = {"spin", parse_spin, "microseconds, 0 to 1000000, or auto"},
    [CFG_RING] = {"ring", parse_ring,
                  "bytes (rounded up to a power of two, 4k to 64m), or 0 for the wire's own"},
    [CFG_RAILS] = {"rails", parse_rails, "rails at once, 0 to 100000"},
    [CFG_MEMORY] = {"memory", parse_memory, "the rings' bytes, a number that k, m or g may follow"},
    [CFG_IDLE] = {"idle", parse_idle, "seconds, 0 to 86400, 0 = never"},
    [CFG_STALL] = {"stall", parse_stall, "milliseconds, 0 to 60000, 0 = for ever"},
    [CFG_TOS] = {"tos", parse_tos, "a service type, 0 to 255"},
    [CFG_SITE_KEY] = {"key", parse_site_key, "a file with 32 hexadecimal digits, or none"},
};

const char *cfg_key_name(enum cfg_key key)
{
    return keys[key].name;
}

const char *cfg_key_expected(enum cfg_key key)
{
    return keys[key].expected;
}

bool cfg_key_parse(enum cfg_key key, const char *text, struct cfg_stream *s)
{
    if (!keys[key].parse(text, s))
        return false;
    s->given |= 1u << key;
    return true;
}

static void print_board(const struct cfg_stream *s, char *text, size_t size)
{
    char bytes[24];

    if (s->board_never) {
        snprintf(text, size, "never");
    } else if (s->board_calls == cfg_stream_defaults.board_calls &&
               s->board_bytes == cfg_stream_defaults.board_bytes) {
        snprintf(text, size, "auto");
    } else if (s->board_calls == UINT32_MAX) {
        put_size(s->board_bytes, bytes, sizeof(bytes));
        snprintf(text, size, "after=%s", bytes);
    } else if (s->board_calls == 1 && s->board_bytes != UINT64_MAX) {
        snprintf(text, size, "eager");
    } else {
        snprintf(text, size, "after=%" PRIu32, s->board_calls);
    }
}

const char *cfg_key_print(enum cfg_key key, const struct cfg_stream *s, char *text, size_t size)
{
    switch (key) {
    case CFG_MODE:
        snprintf(text, size, "%s", modes[s->mode]);
        break;
    case CFG_WIRE:
        snprintf(text, size, "%s", wires[s->wire]);
        break;
    case CFG_BOARD:
        print_board(s, text, size);
        break;
    case CFG_SPIN:
        if (s->spin_auto)
            snprintf(text, size, "auto");
        else
            snprintf(text, size, "%" PRIu32, s->spin_ns / 1000);
        break;
    case CFG_RING:
        put_size(s->ring, text, size);
        break;
    case CFG_RAILS:
        snprintf(text, size, "%" PRIu64, s->max_rails);
        break;
    case CFG_MEMORY:
        put_size(s->max_memory, text, size);
        break;
    case CFG_IDLE:
        snprintf(text, size, "%" PRIu64, s->idle_ns / 1000000000u);
        break;
    case CFG_STALL:
        snprintf(text, size, "%" PRIu64, s->stall_ns / 1000000u);
        break;
    case CFG_TOS:
        snprintf(text, size, "%d", s->tos);
        break;
    case CFG_SITE_KEY:
        snprintf(text, size, "%s", s->key_file ? s->key_file : "none");
        break;
    case CFG_KEYS:
        text[0] = '\0';
        break;
    }
    return text;
}

/* ---- levels */

void cfg_key_take(struct cfg_stream *out, const struct cfg_stream *from, enum cfg_key key)
{
    out->given |= 1u << key;
    switch (key) {
    case CFG_MODE:
        out->mode = from->mode;
        break;
    case CFG_WIRE:
        out->wire = from->wire;
        break;
    case CFG_BOARD:
        out->board_never = from->board_never;
        out->board_calls = from->board_calls;
        out->board_bytes = from->board_bytes;
        break;
    case CFG_SPIN:
        out->spin_ns = from->spin_ns;
        out->spin_auto = from->spin_auto;
        break;
    case CFG_RING:
        out->ring = from->ring;
        break;
    case CFG_RAILS:
        out->max_rails = from->max_rails;
        break;
    case CFG_MEMORY:
        out->max_memory = from->max_memory;
        break;
    case CFG_IDLE:
        out->idle_ns = from->idle_ns;
        break;
    case CFG_STALL:
        out->stall_ns = from->stall_ns;
        break;
    case CFG_TOS:
        out->tos = from->tos;
        break;
    case CFG_SITE_KEY:
        out->key_file = from->key_file;
        out->site_key = from->site_key;
        break;
    case CFG_KEYS:
        break;
    }
}

void cfg_resolve(struct cfg_stream *out, const struct cfg_stream *const level[], unsigned n)
{
    unsigned mode_at = 0, board_at = 0; /* levels, counted from 1 */

    *out = cfg_stream_defaults;
    for (unsigned i = 0; i < n; i++) {
        const struct cfg_stream *from = level[i];

        for (unsigned key = 0; key < CFG_KEYS; key++)
            if (from->given & 1u << key)
                cfg_key_take(out, from, (enum cfg_key)key);
        if (from->given & 1u << CFG_MODE)
            mode_at = i + 1;
        if (from->given & 1u << CFG_BOARD)
            board_at = i + 1;
        if (from->maps)
            out->maps = from->maps;
    }
    if (out->mode == CFG_RAIL && mode_at > board_at)
        set_eager(out);
}
