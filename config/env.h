/*
 * env.h - the settings of this process, read once from RAILSOCK_* in the environment. A value that
 * cannot be understood is reported once on stderr with its name, what was expected and what is used
 * instead if it is not what the rules say; it never stops a program. A set-user-ID program
 * (AT_SECURE) ignores them all and stays on TCP.
 */
#ifndef CFG_ENV_H
#define CFG_ENV_H

#include "config/values.h"

#include <stdbool.h>
#include <stdint.h>

struct cfg {
    /* RAILSOCK_ and the name of a key (values.h): what was set, and what holds where no rule
     * says otherwise. RAILSOCK_RAILS and RAILSOCK_MEMORY are those of the whole process. */
    struct cfg_stream env, stream;
    bool seccomp_rail;    /* RAILSOCK_SECCOMP=tcp|rail, default tcp: after a filter was installed */
    bool ring_for_files;  /* RAILSOCK_IO_URING=tcp|files, default tcp */
    bool uring;           /* RAILSOCK_PROGRESS=auto|epoll */
    uint64_t test_switch; /* RAILSOCK_TEST_SWITCH=SEED, for tests: harass.c; 0 = off */
    /* RAILSOCK_KEEP=FOLDER: what stat reads stays there, for run --report; empty: no */
    char keep[64];
    int log_level; /* RAILSOCK_LOG=error|warn|info|debug[:FILE]; default error */
    bool log_given;
    char log_file[200]; /* empty: stderr */
    /* What the rules are read from, and matched with, when there is a connection (rules.h). Noted
     * at the start because programs change directory, environment and argv. */
    bool rules;            /* any file may be read */
    char rules_file[1024]; /* RAILSOCK_CONFIG, absolute; empty: the user's and the system's */
    char key_file[1024];   /* RAILSOCK_KEY, absolute: env.key_file */
    char user_file[512];   /* empty: there is none */
    char program[128];     /* the last part of argv[0] */
    char script[256];      /* what was executed, if that is another file: one that begins with #! */
    char argument[256];    /* the first that is no option: perhaps a script (script.h) */
};

/* Valid after cfg_init, never changes. */
extern struct cfg cfg;

/* Reads the environment. Called by the library's constructor, and by tests with their own
 * environment set; idempotent only in that it starts from the defaults each time. */
void cfg_init(void);
/* What only the library's constructor is told. */
void cfg_note_arguments(char *const argv[]);

/* Whether the library reads a variable of that name. */
bool cfg_is_setting(const char *name);
/* What the variable expects, in words, if value is not that; else NULL. For commands that pass
 * values on. An unknown name expects nothing. */
const char *cfg_expected(const char *name, const char *value);

#endif
