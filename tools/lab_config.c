/*
 * lab_config.c - what a host is told at its start, as assignments in bash's syntax.
 *
 * Values from outside (command, environment, paths) pass through quote() and nothing
 * else, so no value can become shell code.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "lab_config.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

extern char **environ;

static void quote(FILE *f, const char *text)
{
    fputc('\'', f);
    for (; *text; text++) {
        if (*text == '\'')
            fputs("'\\''", f);
        else
            fputc(*text, f);
    }
    fputc('\'', f);
}

static void assign(FILE *f, const char *name, const char *value)
{
    fprintf(f, "%s=", name);
    quote(f, value);
    fputc('\n', f);
}

/* Whether a variable of the caller's goes with the command; bash can export no others. */
static bool is_passed(const char *variable)
{
    const char *p = variable;

    if (strncmp(p, "LAB_", 4) != 0 && strncmp(p, "RAILSOCK_", 9) != 0)
        return false;
    while (isalnum((unsigned char)*p) || *p == '_')
        p++;
    return *p == '=';
}

static void put_environment(FILE *f, unsigned number, const struct lab_options *options,
                            const char *scratch)
{
    fputs("lab_env=(\n", f);
    for (char **v = environ; *v; v++) {
        if (!is_passed(*v))
            continue;
        quote(f, *v);
        fputc('\n', f);
    }
    /* Last, because of two values for a name bash takes the later. */
    fprintf(f, "LAB_HOST=%u LAB_HOSTS=%u\n", number, options->hosts);
    for (unsigned i = 1; i <= options->hosts; i++)
        fprintf(f, "LAB_IP_%u=10.1.0.%u LAB_IP6_%u=fd01::%u\n", i, i, i, i);
    fprintf(f, "LAB_DEVICE=%s\n", options->device->name);
    fputs("LAB_SCRATCH=", f);
    quote(f, scratch);
    fputs("\n)\n", f);
}

char *lab_config_make(unsigned number, const struct lab_options *options,
                      const struct lab_image *image, const char *scratch, const char *token,
                      size_t *len)
{
    const char *term = getenv("TERM");
    char *cwd = getcwd(NULL, 0);
    char *text = NULL;
    FILE *f = cwd ? open_memstream(&text, len) : NULL;

    if (!f) {
        free(cwd);
        return NULL;
    }
    fprintf(f, "lab_host=%u\nlab_hosts=%u\n", number, options->hosts);
    assign(f, "lab_kind", options->device->kind);
    assign(f, "lab_modules", image->modules);
    assign(f, "lab_scratch", scratch);
    assign(f, "lab_cwd", cwd);
    assign(f, "lab_token", token);
    assign(f, "lab_term", term ? term : "dumb");
    /* A line editor would lose the end of input that comes while a command runs. */
    assign(f, "lab_editing", isatty(STDIN_FILENO) ? "" : "--noediting");
    assign(f, "lab_mode", !options->shell ? "run" : number == 1 ? "shell" : "idle");
    put_environment(f, number, options, scratch);
    fputs("lab_command=(\n", f);
    for (char **word = options->command; *word; word++) {
        quote(f, *word);
        fputc('\n', f);
    }
    fputs(")\n", f);
    free(cwd);
    if (fclose(f) != 0) {
        free(text);
        return NULL;
    }
    return text;
}
