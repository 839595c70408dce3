/*
 * check.c - `railsock check`: what the rules say, and which of them decides.
 */
#include "tools/commands.h"

#include "config/env.h"
#include "config/parse.h"
#include "config/print.h"
#include "config/reason.h"
#include "config/script.h"
#include "tools/budget_look.h"
#include "tools/elf_look.h"
#include "tools/rules_look.h"

#include <errno.h>
#include <limits.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void usage(FILE *f)
{
    fputs(
        "usage: railsock check [FILE] [--match server|client PROGRAM ADDRESS:PORT [--user USER]]\n"
        "\n"
        "Reads the rules of FILE, or those that a program started here would read, and prints\n"
        "them in their normal form. Every error is shown; status 1 if there is any.\n"
        "\n"
        "  --match ROLE PROGRAM ADDRESS:PORT   prints which rule decides for a connection that\n"
        "                                      PROGRAM has accepted at (server) or made to\n"
        "                                      (client) that address, and what then holds\n"
        "  --user USER                         who runs PROGRAM, if not you\n",
        f);
}

struct question {
    bool help;
    unsigned role; /* 0: none */
    const char *program, *to, *user;
    bool another; /* user is not this one: no user's own file is read */
};

static const char *last_part(const char *path)
{
    const char *slash = strrchr(path, '/');

    return slash ? slash + 1 : path;
}

/* Where there is room for the paths in struct cfg_who. */
struct paths {
    char executed[PATH_MAX], runs[PATH_MAX], exe[PATH_MAX], script[PATH_MAX];
};

/* What env(1) makes of a script that begins with it. */
static void by_env(struct cfg_who *who, struct paths *p)
{
    char text[CFG_SCRIPT_LINE], name[CFG_SCRIPT_LINE];
    FILE *f = fopen(p->executed, "re");
    size_t n = f ? fread(text, 1, sizeof(text), f) : 0;
    enum cfg_script kind = cfg_script_of(text, n, name);

    if (f)
        fclose(f);
    if (kind == CFG_SCRIPT_NONE)
        return;
    strcpy(p->script, p->executed);
    if (kind == CFG_SCRIPT_ENV && elf_search(name, p->executed) &&
        elf_check(p->executed, p->runs) != ELF_UNKNOWN && strcmp(p->executed, p->runs) == 0) {
        who->env_script = p->script;
        return;
    }
    fprintf(
        stderr,
        "railsock check: warning: %s: env executes the interpreter anew, and rules see only that\n",
        p->script);
    who->name = who->exe = "env";
    p->executed[0] = '\0';
}

/* What the kernel makes of a command: of a script its interpreter runs, and has the name. */
static void as_executed(const char *command, struct cfg_who *who, struct paths *p)
{
    who->name = last_part(command);
    who->exe = command;
    if (!elf_search(command, p->executed))
        return;
    by_env(who, p);
    if (elf_check(p->executed, p->runs) == ELF_UNKNOWN)
        return;
    who->script = p->executed;
    who->exe = realpath(p->runs, p->exe) ? p->exe : p->runs;
    if (who->env_script || strcmp(p->executed, p->runs) != 0)
        who->name = last_part(p->runs);
}

/* Another user does not read this one's file, and this one need not be able to read his. */
static void leave_out_own(struct cfg_rules *r, struct question *q)
{
    q->another = !cfg.rules_file[0] && q->user && cfg_word_uid(r, q->user) != (uint32_t)geteuid();
    if (q->another)
        cfg.user_file[0] = '\0';
}

/* Status. */
static int answer(struct cfg_rules *r, const struct question *q)
{
    struct cfg_prefix to;
    uint16_t port, last;
    struct cfg_who who = {.uid = (uint32_t)geteuid()};
    const struct cfg_node *n;
    struct cfg_stream values;
    char why[BUDGET_WHY];
    struct paths paths;

    if (cfg_word_endpoint(q->to, &to, &port, &last) || port != last || !to.family ||
        to.bits != (to.family == AF_INET ? 32 : 128)) {
        fprintf(stderr, "railsock check: %s: expected one address and port, like 10.1.2.3:80\n",
                q->to);
        return 2;
    }
    if (q->user) {
        who.uid = cfg_word_uid(r, q->user);
        if (who.uid == CFG_NO_UID) {
            fprintf(stderr, "railsock check: %s: no such user in /etc/passwd\n", q->user);
            return 2;
        }
    }
    as_executed(q->program, &who, &paths);
    n = cfg_rules_find(r, q->role, &who, to.family, to.addr, port);
    if (n) {
        printf("%s:%u: ", n->at.file->path, n->at.line);
        cfg_print_node(stdout, n);
    } else {
        puts("no rule: the defaults");
    }
    values = n ? n->stream : r->base;
    /* A rule's own budget, and else the process's. */
    values.given = (1u << CFG_KEYS) - 1;
    if (values.max_rails == UINT64_MAX)
        values.max_rails = r->base.max_rails;
    if (values.max_memory == UINT64_MAX)
        values.max_memory = r->base.max_memory;
    if (values.tos < 0)
        values.given &= ~(1u << CFG_TOS);
    if (!values.key_file)
        values.given &= ~(1u << CFG_SITE_KEY);
    if (q->another)
        puts("that user's own file, if there is one, is not looked at, nor is yours");
    if (values.key_file && who.uid != (uint32_t)geteuid())
        puts("its key is judged as you, not that user, may read it");
    fputs("then:", stdout);
    cfg_print_values(stdout, &values);
    putchar('\n');
    if (values.reason)
        printf("so it stays on TCP: %s\n", cfg_reason_name(values.reason));
    else if (budget_look(&r->base, &values, why))
        printf("so it stays on TCP: %s (%s)\n", cfg_reason_name(RSN_BUDGET), why);
    return 0;
}

/* The names in user conditions that nobody has here. */
static void warn_users(const struct cfg_rules *r)
{
    for (const struct cfg_node *n = r->nodes; n; n = n->next)
        if (n->kind == CFG_RULE && n->user && n->uid == CFG_NO_UID)
            fprintf(stderr,
                    "%s:%u: warning: no user %s in /etc/passwd: the rule decides for nobody; a "
                    "number stands for users that are elsewhere\n",
                    n->at.file->path, n->at.line, n->user);
}

static void warn_keys(const struct cfg_rules *r)
{
    for (const struct cfg_node *n = r->nodes; n; n = n->next)
        if (n->v.key_file && !n->v.site_key && (!n->user || n->uid == (uint32_t)geteuid()))
            fprintf(
                stderr,
                "%s:%u: warning: this user may not read the key %s: what needs it stays on TCP\n",
                n->at.file->path, n->at.line, n->v.key_file);
}

static bool is_for_all(const struct cfg_node *n)
{
    return !n->program && !n->user && !n->to.family && !n->port_from && n->port_to == UINT16_MAX;
}

/* Rules that stand after others without conditions. */
static void warn_hidden(const struct cfg_rules *r)
{
    const struct cfg_node *all[CFG_CLIENT + 1] = {0};

    for (const struct cfg_node *n = r->nodes; n; n = n->next) {
        const struct cfg_node *by = NULL;
        bool reached = false;

        if (n->kind != CFG_RULE)
            continue;
        for (unsigned role = CFG_SERVER; role <= CFG_CLIENT; role++) {
            if (!(n->roles & role))
                continue;
            if (all[role])
                by = all[role];
            else
                reached = true;
            if (!all[role] && is_for_all(n))
                all[role] = n;
        }
        if (!reached && by)
            fprintf(stderr, "%s:%u: warning: this rule never decides: %s:%u is for all\n",
                    n->at.file->path, n->at.line, by->at.file->path, by->at.line);
    }
}

static void warn_left_out(const struct cfg_rules *r)
{
    if (r->left_out)
        fprintf(stderr, "%s: warning: this user may not %s: it is left out\n", r->left_out,
                access(r->left_out, F_OK) < 0 ? "see whether it is there" : "read it");
}

static void warn_files(void)
{
    char text[RULES_LOOK];

    if (rules_look(text))
        fprintf(stderr, "railsock check: warning: %s\n", text);
}

/* words: those behind --match. False: said what is wrong. */
static bool parse_match(char **words, struct question *q)
{
    if (q->role) {
        fputs("railsock check: --match is there twice\n", stderr);
        return false;
    }
    q->role = !words[0]                         ? 0
              : strcmp(words[0], "server") == 0 ? CFG_SERVER
              : strcmp(words[0], "client") == 0 ? CFG_CLIENT
                                                : 0;
    if (!q->role || !words[1] || !words[2]) {
        fprintf(
            stderr,
            "railsock check: --match%s%s: expected server or client, PROGRAM and ADDRESS:PORT\n",
            words[0] ? " " : "", words[0] ? words[0] : "");
        return false;
    }
    q->program = words[1];
    q->to = words[2];
    return true;
}

/* False: not understood, and said why. */
static bool parse(char **argv, const char **file, struct question *q)
{
    bool options = true;

    for (int i = 1; argv[i]; i++) {
        if (options && strcmp(argv[i], "--") == 0) {
            options = false;
        } else if (options && (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0)) {
            q->help = true;
            return true;
        } else if (options && strcmp(argv[i], "-") == 0) {
            fputs("railsock check: -: expected a file: rules are not read from a pipe\n", stderr);
            return false;
        } else if (options && strcmp(argv[i], "--match") == 0) {
            if (!parse_match(argv + i + 1, q))
                return false;
            i += 3;
        } else if (options && strcmp(argv[i], "--user") == 0 && argv[i + 1]) {
            q->user = argv[++i];
        } else if (options && strcmp(argv[i], "--user") == 0) {
            fputs("railsock check: --user: expected a user's name or number\n", stderr);
            return false;
        } else if ((options && argv[i][0] == '-') || *file) {
            fprintf(stderr, "railsock check: unexpected argument: %s\n", argv[i]);
            return false;
        } else if (!*argv[i]) {
            fputs("railsock check: an empty word: expected a file of rules\n", stderr);
            return false;
        } else {
            *file = argv[i];
        }
    }
    if (q->user && !q->role)
        fputs("railsock check: --user needs --match: it is whose program is meant there\n", stderr);
    return !q->user || q->role;
}

int cmd_check(int argc, char **argv)
{
    struct question q = {0};
    const char *file = NULL;
    struct cfg_rules r;
    int status = 0;

    (void)argc;
    if (!parse(argv, &file, &q))
        return command_wrong("railsock check");
    if (q.help)
        return command_help("railsock check", usage);
    cfg_init();
    if (!cfg_rules_begin(&r)) {
        fprintf(stderr, "railsock check: %s\n", strerror(ENOMEM));
        return 1;
    }
    if (file) {
        cfg_rules_read(&r, file, false, false);
    } else {
        leave_out_own(&r, &q);
        cfg_rules_read_all(&r);
        warn_files();
    }
    cfg_rules_settle(&r);
    if (r.n_errors) {
        cfg_print_errors(stderr, &r);
        status = 1;
    } else {
        warn_left_out(&r);
        warn_hidden(&r);
        warn_users(&r);
        warn_keys(&r);
        if (q.role)
            status = answer(&r, &q);
        else
            cfg_print(stdout, &r);
    }
    cfg_rules_end(&r);
    if (fflush(stdout) != 0) {
        fprintf(stderr, "railsock check: %s\n", strerror(errno));
        return 1;
    }
    return status;
}
