/*
 * script.c - see script.h.
 */
#include "config/script.h"

#include "config/raw.h"

#include <string.h>
#include <sys/stat.h>

static const char blank[] = " \t";

enum cfg_script cfg_script_of(const char *text, size_t n, char name[CFG_SCRIPT_LINE])
{
    char line[CFG_SCRIPT_LINE + 1], *word, *rest = line;
    const char *last;

    n = n < CFG_SCRIPT_LINE ? n : CFG_SCRIPT_LINE;
    memcpy(line, text, n);
    line[n] = '\0';
    if (strncmp(line, "#!", 2) != 0 || !strchr(line, '\n'))
        return CFG_SCRIPT_NONE;
    *strchr(line, '\n') = '\0';
    rest += 2;
    rest += strspn(rest, blank);
    word = strsep(&rest, blank);
    last = strrchr(word, '/');
    if (strcmp(last ? last + 1 : word, "env") != 0)
        return CFG_SCRIPT_NONE;
    do
        word = strsep(&rest, blank);
    while (word && (!*word || strcmp(word, "-S") == 0));
    if (!word || *word == '-' || strpbrk(word, "=\\\"'$"))
        return CFG_SCRIPT_STRANGE;
    strcpy(name, word);
    while ((word = strsep(&rest, blank)))
        if (*word && *word != '-')
            return CFG_SCRIPT_STRANGE;
    return CFG_SCRIPT_ENV;
}

int cfg_script_runs(const char *path, const char *program)
{
    char text[CFG_SCRIPT_LINE], name[CFG_SCRIPT_LINE];
    int fd = cfg_raw_open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY, 0);
    const char *last;
    struct stat st;
    long n = 0;

    if (fd < 0)
        return fd;
    if (fstat(fd, &st) == 0 && S_ISREG(st.st_mode))
        n = cfg_raw4(SYS_read, fd, (long)text, sizeof(text), 0);
    cfg_raw_close(fd);
    if (n <= 0 || cfg_script_of(text, (size_t)n, name) != CFG_SCRIPT_ENV)
        return 0;
    last = strrchr(name, '/');
    return strcmp(last ? last + 1 : name, program) == 0;
}
