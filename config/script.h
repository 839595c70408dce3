/*
 * script.h - scripts that begin with `#!/usr/bin/env NAME`: env executes NAME anew, so what the
 * kernel has executed is NAME, and only the first argument that is no option tells of the script.
 */
#ifndef CFG_SCRIPT_H
#define CFG_SCRIPT_H

#include <stdbool.h>
#include <stddef.h>

enum { CFG_SCRIPT_LINE = 256 }; /* as much as the kernel reads of it */

enum cfg_script {
    CFG_SCRIPT_NONE,    /* no such line */
    CFG_SCRIPT_STRANGE, /* env, but the script is not NAME's first argument but for options */
    CFG_SCRIPT_ENV,
};

/* text: the beginning of a file, of n bytes. name is set for CFG_SCRIPT_ENV, as it is written: it
 * may be a path. */
enum cfg_script cfg_script_of(const char *text, size_t n, char name[CFG_SCRIPT_LINE]);
/* Is it the file of a script that env has executed a program of this name for? -errno if it
 * cannot be opened. */
int cfg_script_runs(const char *path, const char *program);

#endif
