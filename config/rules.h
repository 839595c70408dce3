/*
 * rules.h - the rules: which settings the streams of which program, user, address and port have.
 * Read from files, with every error noted; then never changed. README.md has the grammar.
 *
 * Everything lies in one mapping of its own (arena.h). No malloc, no stdio stream and no libc call
 * that the library interposes, because an application's thread reads the rules inside its first
 * accept or connect.
 */
#ifndef CFG_RULES_H
#define CFG_RULES_H

#include "config/arena.h"
#include "config/values.h"

enum { CFG_SERVER = 1, CFG_CLIENT = 2 }; /* who accepted the connection, and who made it */

/* Network order, IPv4 in the first four bytes; bits beyond the prefix are 0. */
struct cfg_prefix {
    uint8_t family; /* AF_INET, AF_INET6; 0: every address */
    uint8_t bits;
    uint8_t addr[16];
};

/* What TCP reaches at an address of the one, RDMA reaches at that of the other. Same
 * family and bits. */
struct cfg_map {
    struct cfg_map *next;
    struct cfg_prefix tcp, rdma;
};

struct cfg_use {
    uint32_t rails;
    uint64_t memory;
};

struct cfg_file {
    struct cfg_file *next, *from; /* from: which includes it */
    const char *path;
    const char *text; /* ends with NUL; may hold others */
    size_t size;
    uint64_t dev, ino; /* 0, 0: not looked at */
    bool guarded;      /* must belong to root or the user */
};

struct cfg_place {
    const struct cfg_file *file;
    uint32_t line, column; /* from 1 */
};

enum cfg_kind { CFG_RULE, CFG_DEFAULTS, CFG_LOG, CFG_INCLUDE };

/* A statement. */
struct cfg_node {
    struct cfg_node *next;
    enum cfg_kind kind;
    struct cfg_place at;
    /* A rule's conditions. */
    unsigned roles;      /* CFG_SERVER, CFG_CLIENT */
    const char *program; /* a glob of the name or, with a slash, of the path; NULL: any */
    const char *user;    /* a name or number; NULL: any */
    uint32_t uid;        /* CFG_NO_UID: nobody has that name */
    bool has_to;         /* to was there, *:* perhaps */
    struct cfg_prefix to;
    uint16_t port_from, port_to;
    /* Its settings, or those of `defaults`. */
    struct cfg_stream v;
    struct cfg_map *maps;
    struct cfg_stream stream; /* resolved: defaults, the file's, these, the environment's */
    struct cfg_use use;
    struct cfg_place key_at; /* of the site key's file */
    /* log and include */
    const char *path; /* NULL: not given */
    int level;        /* CFG_LOG_*, 0: not given */
};

#define CFG_NO_UID UINT32_MAX

struct cfg_error {
    struct cfg_error *next;
    struct cfg_place at;
    const char *text;
    const char *line; /* of the file; NULL: there is none to show */
};

enum { CFG_MAX_ERRORS = 50, CFG_MAX_NODES = 4096, CFG_MAX_FILES = 64, CFG_MAX_TEXT = 1 << 20 };

struct cfg_rules {
    struct cfg_arena arena;
    struct cfg_file *files, **files_end;
    struct cfg_node *nodes; /* includes are replaced by what they include */
    struct cfg_error *errors, **errors_end;
    unsigned n_errors, n_nodes, n_files;
    size_t text;
    bool no_fd;             /* a file could not be opened for want of a descriptor */
    bool full;              /* no memory: the rest was not read */
    struct cfg_stream env;  /* the environment's, with its site key */
    struct cfg_stream base; /* resolved: where no rule says otherwise */
    const char *left_out;   /* the user's own file, if he may not read it; else NULL */
    const char *log_file;   /* as cfg_log_to takes it; NULL: nothing was said */
    int log_level;          /* 0: nothing was said */
    const char *exe;        /* this program's path; "" if not known */
    /* Where files are opened: 0 or a count, or -errno. NULL: by the kernel. For the fuzzer. */
    ssize_t (*read)(const char *path, char *buf, size_t size);
};

/* ---- reading */

#define CFG_SYSTEM_FILE "/etc/railsock.conf"

/* False: no memory. */
bool cfg_rules_begin(struct cfg_rules *);
void cfg_rules_end(struct cfg_rules *);
/* Adds what a file and those that it includes say, before what was read so far: earlier rules win.
 * Errors are noted. optional: it need not be there, nor be readable; guarded: it must belong to
 * root or to the user, and so must what it includes. */
void cfg_rules_read(struct cfg_rules *, const char *path, bool optional, bool guarded);
/* The files that a program of this environment reads (cfg.rules_file, or the user's and
 * the system's). */
void cfg_rules_read_all(struct cfg_rules *);
/* Reads the site keys and resolves the settings, with the environment's above them, and not more
 * memory than this process's control groups leave. A key in the rules that this user may not read
 * is no error, nor is one of another user's rule: what needs it stays on TCP. */
void cfg_rules_settle(struct cfg_rules *);

/* Notes an error; for the reader's own files. */
__attribute__((format(printf, 3, 4))) void cfg_complain(struct cfg_rules *, struct cfg_place,
                                                        const char *fmt, ...);

/* ---- looking up */

struct cfg_who {
    const char *name, *exe; /* last part of argv[0]; path */
    uint32_t uid;
    /* path of what was executed: of a script, where exe is its interpreter's; or NULL */
    const char *script;
    const char *env_script; /* of a script that env has executed it for (script.h); or NULL */
};

/* The first rule for that role, program, user, address and port. NULL: none. */
const struct cfg_node *cfg_rules_find(const struct cfg_rules *, unsigned role,
                                      const struct cfg_who *, uint8_t family, const uint8_t *addr,
                                      uint16_t port);

/* Where RDMA reaches addr: true, and addr is changed, if a map holds it. */
bool cfg_map_apply(const struct cfg_map *, uint8_t family, uint8_t addr[16]);

/* ---- this process's own rules: the library */

/* Reads them. One thread at a time, with signals blocked; takes a millisecond. False: no descriptor
 * was left, and nothing is known; another call may have more luck. */
bool cfg_rules_load(void);
bool cfg_rules_loaded(void);
/* The settings of a stream of this process. Before they are loaded: cfg.stream. */
const struct cfg_stream *cfg_rules_stream(unsigned role, uint8_t family, const uint8_t *addr,
                                          uint16_t port);
/* True unless every stream of this process has cfg.stream, whatever its addresses. */
bool cfg_rules_may_decide(void);
/* Where no rule decides, and the budgets of the process. */
const struct cfg_stream *cfg_rules_base(void);
/* A forked child has no rail; and the thread that was reading, if one was, is not there. */
void cfg_rules_forget(void);

#endif
