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
    char *end;

    if (!isdigit((unsigned char)*text))
        return false;
    errno = 0;
    c->test_switch = strtoull(text, &end, 10);
    return !errno && !*end && c->test_switch <= UINT32_MAX;
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

/* The rules are read later, perhaps from another directory. */
static bool parse_config(const char *text, struct cfg *c)
{
    char dir[sizeof(c->rules_file)] = "";
    int n;

    if (text[0] != '/' && !getcwd(dir, sizeof(dir)))
        return false;
    n = snprintf(c->rules_file, sizeof(c->rules_file), "%s%s%s", dir, dir[0] ? "/" : "", text);
    if (n >= 0 && (size_t)n < sizeof(c->rules_file))
        return true;
    c->rules_file[0] = '\0';
    return false;
}

static const struct setting {
    const char *name;
    bool (*parse)(const char *, struct cfg *);
    const char *expected, *used;
} settings[] = {
    {"SECCOMP", parse_seccomp, "tcp or rail", "tcp"},
    {"PROGRESS", parse_progress, "auto or epoll", "auto"},
    {"TEST_SWITCH", parse_switch, "a seed, 0 to 4294967295", "0"},
    {"LOG", parse_log,
     "error, warn, info or debug, then :FILE if not to stderr (a path below 200 bytes)", "error"},
    {"CONFIG", parse_config, "a file (a path below 1024 bytes)", "the user's and the system's"},
};

enum { N_SETTINGS = sizeof(settings) / sizeof(settings[0]) };

static void report(const char *name, const char *value, const char *expected, const char *used)
{
    char line[400];
    size_t n = (size_t)snprintf(line, sizeof(line), "railsock: %s=%.80s%s: expected %s; using %s",
                                name, value, strlen(value) > 80 ? "..." : "", expected, used);

    if (n > sizeof(line) - 1)
        n = sizeof(line) - 1;
    for (size_t i = 0; i < n; i++)
        if ((unsigned char)line[i] < ' ' || line[i] == 0x7f)
            line[i] = '?';
    line[n++] = '\n';
    cfg_raw_write(STDERR_FILENO, line, n);
}

/* RAILSOCK_ and the key's name in capitals. */
static void key_variable(enum cfg_key key, char name[32])
{
    size_t n = (size_t)snprintf(name, 32, "RAILSOCK_%s", cfg_key_name(key));

    for (size_t i = 0; i < n; i++)
        name[i] = (char)toupper((unsigned char)name[i]);
}

const char *cfg_expected(const char *name, const char *value)
{
    struct cfg_stream stream = cfg_stream_defaults;
    struct cfg scratch = DEFAULTS;
    char variable[32];

    for (unsigned key = 0; key < CFG_KEYS; key++) {
        key_variable((enum cfg_key)key, variable);
        if (strcmp(name, variable) == 0)
            return cfg_key_parse((enum cfg_key)key, value, &stream)
                       ? NULL
                       : cfg_key_expected((enum cfg_key)key);
    }
    for (size_t i = 0; i < N_SETTINGS; i++)
        if (strncmp(name, "RAILSOCK_", 9) == 0 && strcmp(name + 9, settings[i].name) == 0)
            return settings[i].parse(value, &scratch) ? NULL : settings[i].expected;
    return "no such setting";
}

static const struct cfg_stream *const env_level[] = {&cfg.env};

static void read_keys(void)
{
    char name[32], used[32];

    for (unsigned key = 0; key < CFG_KEYS; key++) {
        const char *value;

        key_variable((enum cfg_key)key, name);
        value = getenv(name);
        if (!value || !*value || cfg_key_parse((enum cfg_key)key, value, &cfg.env))
            continue;
        cfg_resolve(&cfg.stream, env_level, 1);
        if (key == CFG_TOS)
            snprintf(used, sizeof(used), "the kernel's");
        else
            cfg_key_print((enum cfg_key)key, &cfg.stream, used, sizeof(used));
        report(name, value, cfg_key_expected((enum cfg_key)key), used);
    }
    cfg_resolve(&cfg.stream, env_level, 1);
}

static void read_settings(void)
{
    char name[32];

    for (size_t i = 0; i < N_SETTINGS; i++) {
        const struct setting *s = &settings[i];
        const char *value;

        snprintf(name, sizeof(name), "RAILSOCK_%s", s->name);
        value = getenv(name);
        if (!value || !*value)
            continue;
        if (!s->parse(value, &cfg))
            report(name, value, s->expected, s->used);
        else if (s->parse == parse_log)
            cfg.log_given = true;
    }
}

/* Where rules may be, and what they may say of this program. */
static void note_rules(void)
{
    const char *home = getenv("XDG_CONFIG_HOME");
    int n = -1;

    if (home && *home == '/') {
        n = snprintf(cfg.user_file, sizeof(cfg.user_file), "%s/railsock.conf", home);
    } else {
        home = getenv("HOME");
        if (home && *home == '/')
            n = snprintf(cfg.user_file, sizeof(cfg.user_file), "%s/.config/railsock.conf", home);
    }
    if (n < 0 || (size_t)n >= sizeof(cfg.user_file))
        cfg.user_file[0] = '\0';
    snprintf(cfg.program, sizeof(cfg.program), "%s", program_invocation_short_name);
    /* The environment says that nothing boards: there is nothing to be decided. */
    cfg.rules = cfg.stream.mode != CFG_TCP && !cfg.stream.board_never;
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
