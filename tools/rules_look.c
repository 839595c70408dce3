/*
 * rules_look.c - see rules_look.h.
 */
#include "tools/rules_look.h"

#include "config/env.h"
#include "config/rules.h"

#include <errno.h>
#include <stdio.h>
#include <sys/stat.h>

static bool leads_nowhere(const char *path)
{
    struct stat st;

    return lstat(path, &st) == 0 && S_ISLNK(st.st_mode) && stat(path, &st) < 0 && errno == ENOENT;
}

bool rules_look(char text[RULES_LOOK])
{
    const char *const files[] = {CFG_SYSTEM_FILE, cfg.user_file};
    struct stat st;

    if (cfg.rules_file[0])
        return false;
    for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++)
        if (leads_nowhere(files[i])) {
            snprintf(text, RULES_LOOK, "%.200s: it is a link to what is not there", files[i]);
            return true;
        }
    if (stat(CFG_SYSTEM_FILE, &st) < 0)
        return false;
    if (st.st_uid != 0)
        snprintf(text, RULES_LOOK, "%s: it belongs to user %u, who may change what holds for all",
                 CFG_SYSTEM_FILE, (unsigned)st.st_uid);
    else if (S_ISREG(st.st_mode) && st.st_mode & S_IWOTH)
        snprintf(text, RULES_LOOK, "%s: anybody may change it", CFG_SYSTEM_FILE);
    else
        return false;
    return true;
}
