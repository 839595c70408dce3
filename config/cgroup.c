/*
 * cgroup.c - see cgroup.h.
 */
#include "config/cgroup.h"

#include "config/raw.h"

#include <errno.h>
#include <string.h>

/* Who calls may have little stack. */
static char groups[4096], path[1280], value[24];

/* False: it is not there, or longer. */
static bool text_of(const char *name, char *text, size_t size, bool *no_fd)
{
    int fd = cfg_raw_open(name, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY, 0);
    ssize_t n;

    if (fd == -EMFILE || fd == -ENFILE)
        *no_fd = true;
    if (fd < 0)
        return false;
    n = cfg_raw_read(fd, text, size);
    cfg_raw_close(fd);
    if (n < 0 || (size_t)n == size)
        return false;
    text[n] = '\0';
    return true;
}

/* UINT64_MAX: "max", or not a number. */
static uint64_t number(const char *text)
{
    uint64_t n = 0;

    if (*text < '0' || *text > '9')
        return UINT64_MAX;
    for (; *text >= '0' && *text <= '9'; text++)
        if (__builtin_mul_overflow(n, 10, &n) || __builtin_add_overflow(n, *text - '0', &n))
            return UINT64_MAX;
    return n;
}

/* root/kind, then the group and all above it, each with a file of this name. */
static uint64_t least(const char *root, const char *kind, const char *group, const char *file,
                      bool *no_fd)
{
    size_t top = strlen(root) + strlen(kind), end = top + strlen(group);
    uint64_t min = UINT64_MAX;

    if (end + strlen(file) >= sizeof(path))
        return min;
    strcpy(path, root);
    strcat(path, kind);
    strcat(path, group);
    for (;;) {
        while (end > top && path[end - 1] == '/')
            end--;
        strcpy(path + end, file);
        if (text_of(path, value, sizeof(value), no_fd) && number(value) < min)
            min = number(value);
        if (end == top)
            return min;
        while (end > top && path[end - 1] != '/')
            end--;
    }
}

/* Is "memory" one of these, with commas between? */
static bool has_memory(const char *controllers, const char *end)
{
    static const char memory[] = "memory";

    for (const char *at = controllers; at < end; at++) {
        size_t n = strcspn(at, ",:");

        if (n == sizeof(memory) - 1 && memcmp(at, memory, n) == 0)
            return true;
        at += n;
    }
    return false;
}

/* A line is "number:controllers:group"; version 2 has no controllers in its own. */
uint64_t cfg_cgroup_memory(const char *own, const char *root, bool *no_fd)
{
    uint64_t min = UINT64_MAX, one;
    char *next;

    if (!text_of(own, groups, sizeof(groups), no_fd))
        return min;
    for (char *line = groups; *line; line = next) {
        char *controllers = strchr(line, ':'), *group;

        next = line + strcspn(line, "\n");
        if (*next)
            *next++ = '\0';
        group = controllers ? strchr(controllers + 1, ':') : NULL;
        if (!group || group[1] != '/')
            continue;
        if (group == controllers + 1)
            one = least(root, "", group + 1, "/memory.max", no_fd);
        else if (has_memory(controllers + 1, group))
            one = least(root, "/memory", group + 1, "/memory.limit_in_bytes", no_fd);
        else
            continue;
        if (one < min)
            min = one;
    }
    return min;
}
