/*
 * stat_life.c - see stat_life.h.
 */
#include "tools/stat_life.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

bool stat_number(const char *text, uint32_t *value)
{
    unsigned long v;
    char *end;

    if (!isdigit((unsigned char)*text) || (*text == '0' && text[1]))
        return false;
    errno = 0;
    v = strtoul(text, &end, 10);
    if (errno || *end || v > UINT32_MAX)
        return false;
    *value = (uint32_t)v;
    return true;
}

/* Fields 3, 20 and 22 of /proc/PID/stat. False: it cannot be read. */
static bool read_stat(uint32_t pid, char *state, long *threads, unsigned long long *start)
{
    char path[32], text[1024], *p;
    ssize_t n;
    int fd;

    snprintf(path, sizeof(path), "/proc/%u/stat", pid);
    fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return false;
    n = read(fd, text, sizeof(text) - 1);
    close(fd);
    text[n > 0 ? n : 0] = '\0';
    /* The name before it may hold anything, also parentheses. */
    p = strrchr(text, ')');
    return p && sscanf(p + 1,
                       " %c %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %ld "
                       "%*s %llu",
                       state, threads, start) == 3;
}

enum stat_life stat_life(uint32_t pid, uint64_t *start)
{
    unsigned long long value;
    long threads;
    char state;

    if (!read_stat(pid, &state, &threads, &value))
        return kill((pid_t)pid, 0) < 0 && errno == ESRCH ? STAT_ENDED : STAT_HIDDEN;
    *start = value;
    if (state != 'Z' && state != 'X')
        return STAT_RUNS;
    /* A zombie counts itself, until it is collected. */
    return threads <= 1 ? STAT_ENDED : STAT_HEADLESS;
}

uint32_t stat_thread(uint32_t pid)
{
    char path[32];
    struct dirent *e;
    uint32_t tid = pid;
    DIR *d;

    snprintf(path, sizeof(path), "/proc/%u/task", pid);
    d = opendir(path);
    while (d && tid == pid && (e = readdir(d)))
        if (!stat_number(e->d_name, &tid))
            tid = pid;
    if (d)
        closedir(d);
    return tid;
}

bool stat_users(uint32_t pid, unsigned ids[4])
{
    char path[32], line[256];
    bool found = false;
    FILE *f;

    snprintf(path, sizeof(path), "/proc/%u/status", pid);
    f = fopen(path, "re");
    while (f && !found && fgets(line, sizeof(line), f))
        found = sscanf(line, "Uid: %u %u %u %u", &ids[0], &ids[1], &ids[2], &ids[3]) == 4;
    if (f)
        fclose(f);
    return found;
}

bool stat_is_users(uint32_t pid, uid_t uid)
{
    unsigned ids[4];

    if (uid == 0 || !stat_users(pid, ids))
        return true;
    for (int i = 0; i < 4; i++)
        if (ids[i] == uid)
            return true;
    return false;
}
