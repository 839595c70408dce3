/*
 * doctor_program.c - whether LD_PRELOAD can reach a program. elf_look.c finds the first thing that
 * is in the way; here each has a line of its own.
 */
#include "tools/doctor.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

void doc_FOUND(struct doctor *d, struct doc_result *r)
{
    struct stat st;

    d->stop = true;
    if (!elf_search(d->target, d->path)) {
        doc_say(r, DOC_FAIL, "%s is not in PATH", d->target);
        if (!d->target[strspn(d->target, "0123456789")])
            r->advice = "give a program or HOST:PORT; what a process of that number has on rails, "
                        "and why not: railsock stat --pid";
    } else if (stat(d->path, &st) == 0 && S_ISDIR(st.st_mode))
        doc_say(r, DOC_FAIL, "%s is a directory", d->path);
    else if (access(d->path, X_OK) < 0)
        doc_say(r, DOC_FAIL, "%s: %s", d->path, strerror(errno));
    else if (access(d->path, R_OK) < 0)
        doc_say(r, DOC_FAIL, "%s cannot be read, so what it is cannot be told", d->path);
    else {
        doc_say(r, DOC_OK, "%s", d->path);
        d->stop = false;
    }
}

void doc_INTERPRETER(struct doctor *d, struct doc_result *r)
{
    d->why = elf_check(d->path, d->runs);
    if (strcmp(d->path, d->runs) == 0)
        doc_say(r, DOC_OK,
                d->why == ELF_UNKNOWN ? "not a program that the kernel knows" : "none: a program");
    else if (access(d->runs, X_OK) < 0)
        doc_say(r, DOC_FAIL, "%s: %s", d->runs, strerror(errno));
    else
        doc_say(r, DOC_OK, "a script; %s runs it", d->runs);
    if (d->why == ELF_UNKNOWN && r->verdict == DOC_OK) {
        doc_say(r, DOC_FAIL, "%s is neither a program nor a script with a #! line", d->runs);
        r->advice = "name the program that runs it";
    }
    d->stop = r->verdict == DOC_FAIL;
}

static void verdict(struct doctor *d, struct doc_result *r, bool bad, const char *good,
                    const char *what)
{
    doc_say(r, bad ? DOC_FAIL : DOC_OK, "%s", bad ? what : good);
    d->stop = bad;
}

void doc_MACHINE(struct doctor *d, struct doc_result *r)
{
    verdict(d, r, d->why == ELF_NARROW || d->why == ELF_FOREIGN, "as the library's",
            d->why == ELF_NARROW ? "a 32-bit program" : "built for another machine");
}

void doc_DYNAMIC(struct doctor *d, struct doc_result *r)
{
    verdict(d, r, d->why == ELF_STATIC, "dynamically linked", "statically linked");
}

void doc_LIBC(struct doctor *d, struct doc_result *r)
{
    verdict(d, r, d->why == ELF_MUSL, "not musl's", "musl's");
}

void doc_LANGUAGE(struct doctor *d, struct doc_result *r)
{
    verdict(d, r, d->why == ELF_GO, "calls the kernel by way of libc, as far as its file tells",
            "a Go program");
}

void doc_RIGHTS(struct doctor *d, struct doc_result *r)
{
    verdict(d, r, d->why == ELF_SET_ID || d->why == ELF_CAPABLE, "its caller's",
            d->why == ELF_SET_ID ? "set-user-ID or set-group-ID" : "file capabilities");
}
