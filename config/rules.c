/*
 * rules.c - errors, statements to settings, and finding the rule that decides. See rules.h;
 * files.c reads them.
 */
#include "config/rules.h"

#include "config/cgroup.h"
#include "config/env.h"
#include "config/log.h"
#include "config/parse.h"
#include "config/raw.h"
#include "config/reason.h"
#include "config/script.h"
#include "config/site_key.h"

#include <errno.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

/* The texts, a copy of each word, at most CFG_MAX_NODES statements, and /etc/passwd for a moment:
 * there is room for each at its largest. Pages come when they are used. */
#define ARENA_SIZE ((size_t)16 << 20)

bool cfg_rules_begin(struct cfg_rules *r)
{
    *r = (struct cfg_rules){.exe = ""};
    r->files_end = &r->files;
    r->errors_end = &r->errors;
    return cfg_arena_open(&r->arena, ARENA_SIZE);
}

void cfg_rules_end(struct cfg_rules *r)
{
    cfg_arena_close(&r->arena);
    *r = (struct cfg_rules){0};
}

/* ---- errors */

/* The line of the file, copied without its end and with nothing in it that a terminal obeys. */
static const char *line_of(struct cfg_rules *r, struct cfg_place at)
{
    const char *text = at.file ? at.file->text : NULL, *end = text ? text + at.file->size : NULL;
    char *copy;
    size_t n = 0;

    if (!text || !at.line)
        return NULL;
    for (uint32_t i = 1; i < at.line; i++) {
        text = memchr(text, '\n', (size_t)(end - text));
        if (!text)
            return NULL;
        text++;
    }
    while (text + n < end && text[n] != '\n' && n < 500)
        n++;
    copy = cfg_arena_copy(&r->arena, text, n);
    for (size_t i = 0; copy && i < n; i++)
        if (copy[i] == '\r')
            copy[i] = ' ';
        else if (copy[i] != '\t' && ((unsigned char)copy[i] < ' ' || copy[i] == 0x7f))
            copy[i] = '?';
    return copy;
}

/* Before the first error that stands behind it in the same file; what values are is known later
 * than what words are. */
static struct cfg_error **place_for(struct cfg_rules *r, struct cfg_place at)
{
    for (struct cfg_error **e = &r->errors; at.line && *e; e = &(*e)->next)
        if ((*e)->at.file == at.file &&
            ((*e)->at.line > at.line || ((*e)->at.line == at.line && (*e)->at.column > at.column)))
            return e;
    return r->errors_end;
}

void cfg_complain(struct cfg_rules *r, struct cfg_place at, const char *fmt, ...)
{
    struct cfg_error *e, **before;
    char text[800];
    size_t n;
    va_list ap;

    r->n_errors++;
    if (r->n_errors > CFG_MAX_ERRORS)
        return;
    va_start(ap, fmt);
    n = (size_t)vsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);
    if (n > sizeof(text) - 1)
        n = sizeof(text) - 1;
    for (size_t i = 0; i < n; i++)
        if ((unsigned char)text[i] < ' ' || text[i] == 0x7f)
            text[i] = '?';
    e = cfg_arena_take(&r->arena, sizeof(*e));
    if (!e || !(e->text = cfg_arena_copy(&r->arena, text, n)))
        return; /* it is counted */
    e->at = at;
    e->line = line_of(r, at);
    before = place_for(r, at);
    e->next = *before;
    *before = e;
    if (!e->next)
        r->errors_end = &e->next;
}

/* ---- settings */

static const struct cfg_file *top_of(const struct cfg_file *f)
{
    while (f && f->from)
        f = f->from;
    return f;
}

bool cfg_may_say(const struct cfg_file **by, const struct cfg_node *n)
{
    const struct cfg_file *top = top_of(n->at.file);

    if (*by && *by != top)
        return false;
    *by = top;
    return true;
}

static void gather(struct cfg_rules *r, struct cfg_stream *defaults)
{
    const struct cfg_file *key_by[CFG_KEYS] = {0}, *map_by = NULL, *file_by = NULL,
                          *level_by = NULL;

    for (const struct cfg_node *n = r->nodes; n; n = n->next) {
        if (n->kind == CFG_LOG) {
            if (n->path && cfg_may_say(&file_by, n))
                r->log_file = n->path;
            if (n->level && cfg_may_say(&level_by, n))
                r->log_level = n->level;
        }
        if (n->kind != CFG_DEFAULTS)
            continue;
        for (unsigned key = 0; key < CFG_KEYS; key++)
            if (n->v.given & 1u << key && cfg_may_say(&key_by[key], n))
                cfg_key_take(defaults, &n->v, (enum cfg_key)key);
        if (n->v.maps && cfg_may_say(&map_by, n))
            defaults->maps = n->v.maps;
    }
}

/* The site key of these settings, if they have one. True: it lies in the arena. */
static bool read_key(struct cfg_rules *r, struct cfg_stream *s, struct cfg_place at)
{
    uint8_t *key;
    int err;

    if (!(s->given & 1u << CFG_SITE_KEY) || !s->key_file || r->read)
        return false;
    if (!*s->key_file) {
        cfg_complain(r, at, "RAILSOCK_KEY: expected a path below 1024 bytes");
        return false;
    }
    key = cfg_arena_take(&r->arena, 16);
    err = key ? cfg_site_key_read(s->key_file, key) : -ENOMEM;
    r->no_fd |= err == -EMFILE || err == -ENFILE;
    if (!err)
        s->site_key = key;
    else if (err != -EACCES || !at.file)
        cfg_complain(r, at, "%sexpected a file with a key: %.200s: %s",
                     at.file ? "" : "RAILSOCK_KEY: ", s->key_file, cfg_why(err));
    return !err;
}

/* Why a stream with these settings stays on TCP. */
static uint16_t reason_of(const struct cfg_stream *s)
{
    if (s->mode == CFG_TCP)
        return cfg.env.given & 1u << CFG_MODE ? RSN_MODE_TCP : RSN_RULE;
    if (s->board_never)
        return cfg.env.given & 1u << CFG_BOARD ? RSN_BOARD_NEVER : RSN_RULE;
    return s->key_file && !s->site_key ? RSN_NO_KEY : 0;
}

/* A budget in a rule is that of its streams; those of `defaults` and of the environment are the
 * process's, and one that the environment sets stands instead of the rules'. */
static void settle_budget(struct cfg_node *n)
{
    uint32_t own = n->v.given & ~cfg.env.given & (1u << CFG_RAILS | 1u << CFG_MEMORY);

    n->stream.max_rails = own & 1u << CFG_RAILS ? n->v.max_rails : UINT64_MAX;
    n->stream.max_memory = own & 1u << CFG_MEMORY ? n->v.max_memory : UINT64_MAX;
    n->stream.use = own ? &n->use : NULL;
}

/* Rings are charged to the control group, and their user would be killed where a TCP that finds no
 * memory waits. */
static void fit_memory(struct cfg_stream *s, bool *no_fd)
{
    static struct cfg_cgroups groups;
    uint64_t most;

    if (s->given & 1u << CFG_MEMORY || *no_fd)
        return;
    most = cfg_cgroup_memory(&groups, CFG_CGROUP_OWN, CFG_CGROUP_ROOT) / 4;
    *no_fd = groups.no_fd;
    if (most < s->max_memory)
        s->max_memory = most;
}

void cfg_rules_settle(struct cfg_rules *r)
{
    struct cfg_stream defaults = cfg_stream_defaults;
    const struct cfg_stream *level[] = {&defaults, &r->env, NULL};
    uint32_t uid = (uint32_t)cfg_raw4(SYS_geteuid, 0, 0, 0, 0);
    bool keyed;

    r->env = cfg.env;
    keyed = read_key(r, &r->env, (struct cfg_place){0});
    for (struct cfg_node *n = r->nodes; n; n = n->next)
        if ((n->kind == CFG_RULE && (!n->user || n->uid == uid)) || n->kind == CFG_DEFAULTS)
            keyed |= read_key(r, &n->v, n->key_at);
    if (keyed) /* not in a core file */
        cfg_raw4(SYS_madvise, (long)r->arena.base, (long)r->arena.size, MADV_DONTDUMP, 0);
    gather(r, &defaults);
    cfg_resolve(&r->base, level, 2);
    r->base.reason = reason_of(&r->base);
    for (struct cfg_node *n = r->nodes; n; n = n->next) {
        if (n->kind != CFG_RULE)
            continue;
        level[1] = &n->v;
        level[2] = &r->env;
        cfg_resolve(&n->stream, level, 3);
        n->stream.reason = reason_of(&n->stream);
        settle_budget(n);
    }
    fit_memory(&r->base, &r->no_fd);
}

/* ---- looking up */

static bool path_is(const char *pattern, const char *path)
{
    const char *last = strrchr(path, '/');

    return cfg_glob(pattern, strchr(pattern, '/') || !last ? path : last + 1);
}

static bool program_is(const char *pattern, const struct cfg_who *who)
{
    return (!strchr(pattern, '/') && cfg_glob(pattern, who->name)) || path_is(pattern, who->exe) ||
           (who->script && path_is(pattern, who->script)) ||
           (who->env_script && path_is(pattern, who->env_script));
}

const struct cfg_node *cfg_rules_find(const struct cfg_rules *r, unsigned role,
                                      const struct cfg_who *who, uint8_t family,
                                      const uint8_t *addr, uint16_t port)
{
    for (const struct cfg_node *n = r->nodes; n; n = n->next)
        if (n->kind == CFG_RULE && n->roles & role && port >= n->port_from && port <= n->port_to &&
            cfg_prefix_holds(&n->to, family, addr) && (!n->user || n->uid == who->uid) &&
            (!n->program || program_is(n->program, who)))
            return n;
    return NULL;
}

/* ---- this process's own */

static struct cfg_rules own;
static struct cfg_stream broken;
static const struct cfg_stream *base = &cfg.stream;
static const char *env_script;
static _Atomic bool loaded;

bool cfg_rules_loaded(void)
{
    return atomic_load_explicit(&loaded, memory_order_acquire);
}

bool cfg_rules_may_decide(void)
{
    return !cfg_rules_loaded() || base != &cfg.stream;
}

static const char *own_path(struct cfg_rules *r)
{
    static const char gone[] = " (deleted)";
    char path[1024];
    long n =
        cfg_raw4(SYS_readlinkat, AT_FDCWD, (long)"/proc/thread-self/exe", (long)path, sizeof(path));
    const char *copy;

    if (n <= 0 || n == sizeof(path))
        return "";
    if ((size_t)n > sizeof(gone) &&
        memcmp(path + n - (sizeof(gone) - 1), gone, sizeof(gone) - 1) == 0)
        n -= (long)sizeof(gone) - 1;
    copy = cfg_arena_copy(&r->arena, path, (size_t)n);
    return copy ? copy : "";
}

static void tell_broken(const struct cfg_rules *r)
{
    const struct cfg_error *e = r->errors;
    char where[1100] = "";

    broken = cfg_stream_defaults;
    broken.mode = CFG_TCP;
    broken.reason = e ? RSN_CONFIG : RSN_NO_MEMORY;
    base = &broken;
    if (!e) {
        log_error("there is no memory to read the rules; this program stays on TCP");
        return;
    }
    if (e->at.file && e->at.line)
        snprintf(where, sizeof(where), "%s:%u:%u: ", e->at.file->path, e->at.line, e->at.column);
    else if (e->at.file)
        snprintf(where, sizeof(where), "%s: ", e->at.file->path);
    log_error("%s%s; %u %s; this program stays on TCP%s", where, e->text, r->n_errors,
              r->n_errors == 1 ? "error" : "errors",
              r->n_errors == 1 ? "" : "; railsock check shows all");
}

static void tell_log(const struct cfg_rules *r)
{
    static char path[256];
    const char *file = r->log_file;

    if (cfg.log_given || (!file && !r->log_level))
        return;
    /* As libsdp: a name without a slash belongs to where logs are. */
    if (file && file != CFG_LOG_SYSLOG && *file && *file != '/') {
        unsigned uid = (unsigned)cfg_raw4(SYS_geteuid, 0, 0, 0, 0);

        if (uid)
            snprintf(path, sizeof(path), "/tmp/%s.%u", file, uid);
        else
            snprintf(path, sizeof(path), "/var/log/%s", file);
        file = path;
    }
    cfg_log_to(r->log_level ? r->log_level : cfg.log_level, file ? file : cfg.log_file);
}

/* Its file is opened only if a rule has such a name. */
static bool is_env_script(struct cfg_rules *r)
{
    const struct cfg_node *n = r->nodes;
    int is;

    while (n && !(cfg.argument[0] && n->program && path_is(n->program, cfg.argument)))
        n = n->next;
    is = n ? cfg_script_runs(cfg.argument, cfg.program) : 0;
    r->no_fd |= is == -EMFILE || is == -ENFILE;
    return is > 0;
}

static bool load(void)
{
    if (!cfg_rules_begin(&own)) {
        own.n_errors = 1;
    } else {
        cfg_rules_read_all(&own);
        if (!own.no_fd)
            cfg_rules_settle(&own);
        if (!own.no_fd)
            env_script = is_env_script(&own) ? cfg.argument : NULL;
        if (own.no_fd) {
            cfg_rules_end(&own);
            return false;
        }
    }
    if (own.n_errors) {
        tell_broken(&own);
        own.nodes = NULL;
    } else {
        tell_log(&own);
    }
    if (!own.nodes && (own.n_errors || !own.env.key_file)) {
        if (!own.n_errors)
            cfg.stream.max_memory = own.base.max_memory;
        cfg_rules_end(&own);
        return true;
    }
    base = &own.base;
    own.exe = own_path(&own);
    cfg_arena_trim(&own.arena);
    return true;
}

bool cfg_rules_load(void)
{
    int saved = errno;
    bool done = cfg_rules_loaded() || !cfg.rules || load();

    errno = saved;
    if (done)
        atomic_store_explicit(&loaded, true, memory_order_release);
    return done;
}

const struct cfg_stream *cfg_rules_base(void)
{
    return cfg_rules_loaded() ? base : &cfg.stream;
}

const struct cfg_stream *cfg_rules_stream(unsigned role, uint8_t family, const uint8_t *addr,
                                          uint16_t port)
{
    const struct cfg_node *n = NULL;

    if (cfg_rules_loaded() && own.nodes) {
        struct cfg_who who = {cfg.program, own.exe, (uint32_t)cfg_raw4(SYS_geteuid, 0, 0, 0, 0),
                              cfg.script, env_script};

        n = cfg_rules_find(&own, role, &who, family, addr, port);
    }
    return n ? &n->stream : cfg_rules_base();
}

void cfg_rules_forget(void)
{
    if (!cfg_rules_loaded()) {
        own = (struct cfg_rules){
            0}; /* the thread that was reading is not here; what it had read stays */
        base = &cfg.stream;
        return;
    }
    /* A page that need not be written stays one with the parent's. */
    for (struct cfg_node *n = own.nodes; n; n = n->next)
        if (n->use.rails || n->use.memory)
            n->use = (struct cfg_use){0};
}
