/*
 * env.c - RAILSOCK_* to struct cfg, from one table. Runs once, in the library's
 * constructor, before there is a second thread of ours. No malloc, no stdio stream.
 */
#include "config/env.h"

#include "config/log.h"
#include "config/raw.h"

#include <ctype.h>
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <unistd.h>

#define DEFAULTS                                                                  \
    {                                                                             \
        .env = CFG_STREAM_DEFAULTS, .stream = CFG_STREAM_DEFAULTS, .uring = true, \
        .log_level = CFG_LOG_ERROR,                                               \
    }

struct cfg cfg = DEFAULTS;

/* ---- one parser for each setting that is the process's: false leaves the setting as it was */

/* The place of word in the NULL-terminated list, or -1. */
static int one_of(const char *word, const char *const *list)
{
    for (int i = 0; list[i]; i++)
        if (strcmp(word, list[i]) == 0)
            return i;
    return -1;
}

static bool parse_switch(const char *text, struct cfg *c)
{
    unsigned long long seed;
    char *end;

    if (!isdigit((unsigned char)*text))
        return false;
    errno = 0;
    seed = strtoull(text, &end, 10);
    if (errno || *end || seed > UINT32_MAX)
        return false;
    c->test_switch = seed;
    return true;
}

static bool either(const char *text, const char *no, const char *yes, bool *which)
{
    int i = one_of(text, (const char *const[]){no, yes, NULL});

    if (i >= 0)
        *which = i == 1;
    return i >= 0;
}

static bool parse_progress(const char *text, struct cfg *c)
{
    return either(text, "epoll", "auto", &c->uring);
}

static bool parse_seccomp(const char *text, struct cfg *c)
{
    return either(text, "tcp", "rail", &c->seccomp_rail);
}

static bool parse_io_uring(const char *text, struct cfg *c)
{
    return either(text, "tcp", "files", &c->ring_for_files);
}

/* On the file system of the files that are linked there. */
static bool parse_keep(const char *text, struct cfg *c)
{
    if (strncmp(text, "/dev/shm/", 9) != 0 || strlen(text) >= sizeof(c->keep))
        return false;
    strcpy(c->keep, text);
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

/* The rules and the site key are read later, perhaps from another directory, and with
 * another environment. */
static bool absolute(const char *text, char *out, size_t size)
{
    char dir[1024] = "";
    int n;

    if (text[0] != '/' && !getcwd(dir, sizeof(dir)))
        return false;
    n = snprintf(out, size, "%s%s%s", dir, dir[0] ? "/" : "", text);
    if (n >= 0 && (size_t)n < size)
        return true;
    out[0] = '\0';
    return false;
}

static bool parse_config(const char *text, struct cfg *c)
{
    return absolute(text, c->rules_file, sizeof(c->rules_file));
}

static const struct setting {
    const char *name;
    bool (*parse)(const char *, struct cfg *);
    const char *expected, *used;
} settings[] = {
    {"RAILSOCK_SECCOMP", parse_seccomp, "tcp or rail", "tcp"},
    {"RAILSOCK_IO_URING", parse_io_uring, "tcp or files", "tcp"},
    {"RAILSOCK_PROGRESS", parse_progress, "auto or epoll", "auto"},
    {"RAILSOCK_KEEP", parse_keep, "a folder in /dev/shm (a path below 64 bytes)", "none"},
    {"RAILSOCK_TEST_SWITCH", parse_switch, "a seed, 0 to 4294967295", "0"},
    {"RAILSOCK_LOG", parse_log,
     "error, warn, info or debug, then :FILE if not to stderr (a path below 200 bytes)", NULL},
    {"RAILSOCK_CONFIG", parse_config, "a file (a path below 1024 bytes)",
     "the user's and the system's"},
};

enum { N_SETTINGS = sizeof(settings) / sizeof(settings[0]) };

/* used: instead of the value; NULL: what the rules say, or else the default. */
static void report(const char *name, const char *value, const char *expected, const char *used)
{
    char line[400];
    size_t n = (size_t)snprintf(line, sizeof(line), "railsock: %s=%.80s%s: expected %s; %s%s", name,
                                value, strlen(value) > 80 ? "..." : "", expected,
                                used ? "using " : "not used", used ? used : "");

    if (n > sizeof(line) - 1)
        n = sizeof(line) - 1;
    for (size_t i = 0; i < n; i++)
        if ((unsigned char)line[i] < ' ' || line[i] == 0x7f)
            line[i] = '?';
    line[n++] = '\n';
    cfg_log_stderr(line, n);
}

static const char *const variables[CFG_KEYS] = {
    [CFG_MODE] = "RAILSOCK_MODE",     [CFG_WIRE] = "RAILSOCK_WIRE",
    [CFG_BOARD] = "RAILSOCK_BOARD",   [CFG_SPIN] = "RAILSOCK_SPIN",
    [CFG_RING] = "RAILSOCK_RING",     [CFG_RAILS] = "RAILSOCK_RAILS",
    [CFG_MEMORY] = "RAILSOCK_MEMORY", [CFG_IDLE] = "RAILSOCK_IDLE",
    [CFG_STALL] = "RAILSOCK_STALL",   [CFG_TOS] = "RAILSOCK_TOS",
    [CFG_SITE_KEY] = "RAILSOCK_KEY",
};

bool cfg_is_setting(const char *name)
{
    for (unsigned key = 0; key < CFG_KEYS; key++)
        if (strcmp(name, variables[key]) == 0)
            return true;
    for (size_t i = 0; i < N_SETTINGS; i++)
        if (strcmp(name, settings[i].name) == 0)
            return true;
    return false;
}

const char *cfg_expected(const char *name, const char *value)
{
    struct cfg_stream stream = cfg_stream_defaults;
    struct cfg scratch = DEFAULTS;

    for (unsigned key = 0; key < CFG_KEYS; key++)
        if (strcmp(name, variables[key]) == 0)
            return cfg_key_parse((enum cfg_key)key, value, &stream)
                       ? NULL
                       : cfg_key_expected((enum cfg_key)key);
    for (size_t i = 0; i < N_SETTINGS; i++)
        if (strcmp(name, settings[i].name) == 0)
            return settings[i].parse(value, &scratch) ? NULL : settings[i].expected;
    return "no such setting";
}

static const struct cfg_stream *const env_level[] = {&cfg.env};

/* Nothing may board without it: an empty name, where it is too long, is an error when it
 * is to be read. */
static void note_key_file(const char *name)
{
    (void)absolute(name, cfg.key_file, sizeof(cfg.key_file));
    cfg.env.key_file = cfg.key_file;
}

static void read_keys(void)
{
    for (unsigned key = 0; key < CFG_KEYS; key++) {
        const char *value = getenv(variables[key]);

        if (!value || !*value)
            continue;
        if (cfg_key_parse((enum cfg_key)key, value, &cfg.env)) {
            if (key == CFG_SITE_KEY && cfg.env.key_file)
                note_key_file(value);
            continue;
        }
        /* What was meant to keep a program off the rails must not let it board for a misprint. */
        if (key == CFG_MODE) {
            cfg.env.mode = CFG_TCP;
            cfg.env.given |= 1u << CFG_MODE;
        }
        report(variables[key], value, cfg_key_expected((enum cfg_key)key),
               key == CFG_MODE ? "tcp" : NULL);
    }
    cfg_resolve(&cfg.stream, env_level, 1);
}

static void read_settings(void)
{
    for (size_t i = 0; i < N_SETTINGS; i++) {
        const struct setting *s = &settings[i];
        const char *value = getenv(s->name);

        if (!value || !*value)
            continue;
        if (!s->parse(value, &cfg))
            report(s->name, value, s->expected, s->used);
        else if (s->parse == parse_log)
            cfg.log_given = true;
    }
}

/* a and b as one string; empty, and false, if they do not fit. Not snprintf, which would be the
 * first use of much of libc's memory in a program that has hardly begun. */
static bool join(char *out, size_t size, const char *a, const char *b)
{
    size_t na = strlen(a), nb = strlen(b);

    out[0] = '\0';
    if (na + nb >= size)
        return false;
    memcpy(out, a, na);
    memcpy(out + na, b, nb + 1);
    return true;
}

/* Where rules may be, and what they may say of this program. */
static void note_rules(void)
{
    static const char too_long[] = "a path below 490 bytes", left_out[] = "no rules of the user's";
    const char *config = getenv("XDG_CONFIG_HOME"), *home = getenv("HOME");
    /* the interpreter's argv has its own name */
    const char *executed = (const char *)getauxval(AT_EXECFN);

    if (config && *config == '/') {
        if (!join(cfg.user_file, sizeof(cfg.user_file), config, "/railsock.conf"))
            report("XDG_CONFIG_HOME", config, too_long, left_out);
    } else if (home && *home == '/') {
        if (!join(cfg.user_file, sizeof(cfg.user_file), home, "/.config/railsock.conf"))
            report("HOME", home, too_long, left_out);
    }
    join(cfg.program, sizeof(cfg.program), program_invocation_short_name, "");
    if (executed)
        join(cfg.script, sizeof(cfg.script), executed, "");
    /* The environment says that nothing boards: there is nothing to be decided. */
    cfg.rules = cfg.stream.mode != CFG_TCP && !cfg.stream.board_never;
}

void cfg_note_arguments(char *const argv[])
{
    for (int i = 1; argv[0] && argv[i] && !cfg.argument[0]; i++)
        if (argv[i][0] != '-')
            join(cfg.argument, sizeof(cfg.argument), argv[i], "");
}

void cfg_init(void)
{
    int saved = errno;

    cfg = (struct cfg)DEFAULTS;
    if (getauxval(AT_SECURE)) {
        /* Its caller chose the environment, with fewer rights than it has. */
        cfg.stream.mode = CFG_TCP;
        cfg.stream.board_never = true;
    } else {
        read_keys();
        read_settings();
        note_rules();
    }
    atomic_store_explicit(&cfg_log_level, cfg.log_level, memory_order_relaxed);
    errno = saved;
}
