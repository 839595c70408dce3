/*
 * stat_filter.c - see stat_filter.h.
 */
#include "tools/stat_filter.h"

#include "tools/stat_print.h"

#include <fnmatch.h>
#include <stdlib.h>
#include <string.h>

/* The kernel cuts names at 15 bytes (prctl(2), PR_SET_NAME), so a longer word means
 * its beginning. */
enum { COMM = 15 };

static bool is_program(const char *pattern, const char *program)
{
    if (!strpbrk(pattern, "*?[\\") && strlen(pattern) > COMM)
        return strncmp(pattern, program, COMM) == 0 && strlen(program) == COMM;
    return fnmatch(pattern, program, 0) == 0;
}

static bool is_wanted(const struct stat_conn *c, const struct stat_filter *f)
{
    if (f->port && c->local.port != f->port && c->peer.port != f->port)
        return false;
    return !f->path || strcmp(f->path, stat_path_name(c->path_tx)) == 0 ||
           strcmp(f->path, stat_path_name(c->path_rx)) == 0;
}

/* Of those nothing is known but the number. */
static void filter_others(struct stat_list *list, uint32_t pid)
{
    size_t kept = 0;

    for (size_t i = 0; i < list->n_others; i++)
        if (!pid || list->others[i] == pid)
            list->others[kept++] = list->others[i];
    list->n_others = kept;
}

void stat_filter(struct stat_list *list, const struct stat_filter *f)
{
    size_t kept = 0;

    list->some = f->port || f->path;
    filter_others(list, f->pid);
    for (size_t i = 0; i < list->n; i++) {
        struct stat_process p = list->processes[i];
        size_t n = 0;

        for (size_t j = 0; j < p.nconns; j++)
            if (is_wanted(&p.conns[j], f))
                p.conns[n++] = p.conns[j];
        p.nconns = n;
        if (list->some)
            p.closed = (struct stat_closed){0};
        if ((f->pid && p.pid != f->pid) || (f->program && !is_program(f->program, p.program)) ||
            (list->some && !n))
            free(p.conns);
        else
            list->processes[kept++] = p;
    }
    list->n = kept;
}
