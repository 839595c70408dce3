/*
 * parse.h - what lexer and grammar share while one file is read. For lex.c, gram.y,
 * words.c and rules.c.
 */
#ifndef CFG_PARSE_H
#define CFG_PARSE_H

#include "config/rules.h"

/* A token's text, copied; in place, to blame. */
struct cfg_word {
    const char *text;
    struct cfg_place at;
};

struct cfg_parse {
    struct cfg_rules *rules;
    const struct cfg_file *file;
    struct cfg_node *first, **end; /* the file's statements */
    struct cfg_node *node;         /* the one that is being read */
    /* lex.c's */
    size_t pos, line_start;
    uint32_t line;
    const uint16_t *next; /* the kinds of the next words of the line, then 0; NULL: keywords */
    enum cfg_key key;     /* the setting that was named last */
    bool ended;
    struct cfg_word last; /* the token that was read last: what a syntax error blames */
};

/* Reads p->file into p->first. */
void cfg_parse_file(struct cfg_parse *);

/* ---- files.c */

/* What is the matter with a file, in words; err is -errno. */
const char *cfg_why(int err);
/* A name in a file belongs to the folder of that file. NULL: no memory. */
char *cfg_path_of(struct cfg_rules *, const char *path, const struct cfg_file *from);

/* ---- rules.c */

/* Of a setting in `defaults` or `log`: within a file, and what it includes, a later statement
 * has the say; of two files the first, which is the user's. `by` is who has said it so far,
 * NULL at first. */
bool cfg_may_say(const struct cfg_file **by, const struct cfg_node *);

/* ---- words.c: what values mean; nothing is noted */

/* ADDRESS[/BITS] without bits beyond them; "*" only if any is true. */
bool cfg_word_prefix(const char *text, bool any, struct cfg_prefix *);
/* ADDRESS[/BITS]|*:PORT[-PORT]|*. NULL: understood; else what was expected. */
const char *cfg_word_endpoint(const char *text, struct cfg_prefix *, uint16_t *from, uint16_t *to);
/* 1..9 as libsdp counts, or error, warn, info, debug; 0: neither. */
int cfg_word_level(const char *text);
bool cfg_glob(const char *pattern, const char *text);
bool cfg_prefix_holds(const struct cfg_prefix *, uint8_t family, const uint8_t *addr);
/* A number, or a name in /etc/passwd; CFG_NO_UID: neither. */
uint32_t cfg_word_uid(struct cfg_rules *, const char *name);

/* ---- read.c */

/* All of a file, NUL after it, in the arena. 0 or -errno; -EFBIG: longer than most. *dev and *ino
 * tell which it was, *owner whose. */
int cfg_read_file(struct cfg_rules *, struct cfg_file *, size_t most);

struct cfg_name {
    struct cfg_name *next;
    char text[];
};
/* The names in a folder that match, sorted byte by byte; one that begins with a dot only if the
 * pattern does. 0 or -errno; -E2BIG: more than CFG_MAX_FILES. */
int cfg_read_names(struct cfg_rules *, const char *folder, const char *pattern,
                   struct cfg_name **first);

#endif
