/*
 * files.c - from the names of files to statements: what they include, in place. See rules.h.
 */
#include "config/env.h"
#include "config/parse.h"

#include <errno.h>
#include <string.h>

const char *cfg_why(int err)
{
    switch (err) {
    case -ENOENT:
    case -ENOTDIR:
        return "it is not there";
    case -EACCES:
        return "this user may not read it";
    case -EINVAL:
        return "it is not a regular file";
    case -EPERM:
        return "it belongs to another user";
    case -EMLINK:
        return "others may read or change it";
    case -EBADMSG:
        return "it is not 32 hexadecimal digits";
    case -EFBIG:
        return "the files are longer than 1 MiB in all";
    case -ENOMEM:
        return "there is no memory";
    default:
        return "it cannot be read";
    }
}

char *cfg_path_of(struct cfg_rules *r, const char *path, const struct cfg_file *from)
{
    const char *slash = from && *path != '/' ? strrchr(from->path, '/') : NULL;
    size_t dir = slash ? (size_t)(slash + 1 - from->path) : 0, n = strlen(path);
    char *copy = cfg_arena_take(&r->arena, dir + n + 1);

    if (!copy) {
        r->full = true;
        return NULL;
    }
    if (dir)
        memcpy(copy, from->path, dir);
    memcpy(copy + dir, path, n);
    return copy;
}

static struct cfg_file *add_file(struct cfg_rules *r, const char *path, struct cfg_file *from)
{
    struct cfg_file *f = cfg_arena_take(&r->arena, sizeof(*f));

    if (!f) {
        r->full = true;
        return NULL;
    }
    f->path = path;
    f->from = from;
    f->guarded = from && from->guarded;
    *r->files_end = f;
    r->files_end = &f->next;
    r->n_files++;
    return f;
}

/* What the file says, includes as they stand. */
static struct cfg_node *parse(struct cfg_rules *r, struct cfg_file *f)
{
    struct cfg_parse *p = cfg_arena_take(&r->arena, sizeof(*p));

    if (!p) {
        r->full = true;
        return NULL;
    }
    r->text += f->size;
    p->rules = r;
    p->file = f;
    cfg_parse_file(p);
    return p->first;
}

static bool loops(const struct cfg_file *f)
{
    for (const struct cfg_file *from = f->from; from; from = from->from)
        if (strcmp(from->path, f->path) == 0 ||
            (f->ino && from->ino == f->ino && from->dev == f->dev))
            return true;
    return false;
}

static struct cfg_node *include_file(struct cfg_rules *r, const struct cfg_node *n,
                                     const char *path)
{
    struct cfg_file *f;
    int err;

    if (r->n_files == CFG_MAX_FILES) {
        cfg_complain(r, n->at, "expected no more than %d files", CFG_MAX_FILES);
        return NULL;
    }
    f = add_file(r, path, (struct cfg_file *)n->at.file);
    if (!f)
        return NULL;
    err = cfg_read_file(r, f, CFG_MAX_TEXT - r->text);
    if (loops(f))
        cfg_complain(r, n->at, "expected a file that does not include this one: %.200s", f->path);
    else if (err)
        cfg_complain(r, n->at, "expected a file: %.200s: %s", f->path, cfg_why(err));
    else
        return parse(r, f);
    return NULL;
}

/* All files of a folder whose names match, in the order of their names; none is no error, nor is a
 * folder that is not there. folder ends with a slash, or is empty. */
static struct cfg_node *include_folder(struct cfg_rules *r, const struct cfg_node *n,
                                       const char *folder, const char *pattern)
{
    struct cfg_node *first = NULL, **end = &first;
    struct cfg_name *names = NULL;
    size_t dir = strlen(folder);
    int err = cfg_read_names(r, dir ? folder : ".", pattern, &names);

    if (err == -ENOENT)
        return NULL;
    if (err == -E2BIG)
        cfg_complain(r, n->at, "expected no more than %d files", CFG_MAX_FILES);
    else if (err)
        cfg_complain(r, n->at, "expected a folder: %.200s: %s", folder, cfg_why(err));
    for (; !err && names && !r->full; names = names->next) {
        size_t len = strlen(names->text);
        char *path = cfg_arena_take(&r->arena, dir + len + 1);

        if (!path) {
            r->full = true;
            break;
        }
        memcpy(path, folder, dir);
        memcpy(path + dir, names->text, len);
        *end = include_file(r, n, path);
        while (*end)
            end = &(*end)->next;
    }
    return first;
}

static struct cfg_node *include(struct cfg_rules *r, const struct cfg_node *n)
{
    char *path = cfg_path_of(r, n->path, n->at.file);
    const char *slash = path ? strrchr(path, '/') : NULL;
    const char *last = slash ? slash + 1 : path, *folder;

    if (!path)
        return NULL;
    /* A reader of its own has no folders. */
    if (r->read || !strpbrk(last, "*?["))
        return include_file(r, n, path);
    folder = cfg_arena_copy(&r->arena, path, (size_t)(last - path));
    if (!folder) {
        r->full = true;
        return NULL;
    }
    return include_folder(r, n, folder, last);
}

void cfg_rules_read(struct cfg_rules *r, const char *path, bool optional, bool guarded)
{
    char *copy = cfg_path_of(r, path, NULL);
    struct cfg_file *f = copy ? add_file(r, copy, NULL) : NULL;
    struct cfg_node *first, **at = &first;
    int err;

    if (!f)
        return;
    f->guarded = guarded;
    err = cfg_read_file(r, f, CFG_MAX_TEXT - r->text);
    if (err) {
        if (optional && guarded && err == -EACCES)
            r->left_out = copy;
        else if (!optional || (err != -ENOENT && err != -ENOTDIR))
            cfg_complain(r, (struct cfg_place){.file = f}, "%s", cfg_why(err));
        return;
    }
    first = parse(r, f);
    /* Not by recursion: the stack may be small, and an include in an include is looked at next. */
    while (*at && !r->full) {
        struct cfg_node *n = *at, *theirs, *last;

        if (n->kind != CFG_INCLUDE) {
            at = &n->next;
            continue;
        }
        theirs = last = include(r, n);
        while (last && last->next)
            last = last->next;
        if (last)
            last->next = n->next;
        *at = theirs ? theirs : n->next;
    }
    if (r->full) {
        cfg_complain(r, (struct cfg_place){.file = f}, "too much to be read");
        return;
    }
    *at = r->nodes;
    r->nodes = first;
}

void cfg_rules_read_all(struct cfg_rules *r)
{
    if (cfg.rules_file[0]) {
        cfg_rules_read(r, cfg.rules_file, false, false);
        return;
    }
    cfg_rules_read(r, CFG_SYSTEM_FILE, true, false);
    if (cfg.user_file[0])
        cfg_rules_read(r, cfg.user_file, true, true);
}
