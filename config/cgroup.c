/*
 * cgroup.c - see cgroup.h.
 */
#include "config/cgroup.h"

#include "config/raw.h"

#include <errno.h>
#include <string.h>

/* False: it is not there, or longer. */
static bool text_of(struct cfg_cgroups *c, const char *name, char *text, size_t size)
{
    int fd = c->open ? c->open(name)
                     : cfg_raw_open(name, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY, 0);
    ssize_t n;

    if (fd == -EMFILE || fd == -ENFILE)
        c->no_fd = true;
    if (fd < 0)
        return false;
    n = cfg_raw_read(fd, text, size);
    if (c->close)
        c->close(fd);
    else
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

/* What stands behind the word that begins a line; UINT64_MAX: there is none. */
static uint64_t field(const char *text, const char *word)
{
    size_t n = strlen(word);

    for (; *text; text += strcspn(text, "\n"), text += *text == '\n')
        if (strncmp(text, word, n) == 0 && text[n] == ' ')
            return number(text + n + 1);
    return UINT64_MAX;
}

static void least_memory(const char *text, uint64_t *least)
{
    uint64_t n = number(text);

    if (n < *least)
        *least = n;
}

/* Version 2 counts microseconds, version 1 nanoseconds. */
static void all_throttled(const char *text, uint64_t *sum)
{
    uint64_t periods = field(text, "nr_periods"), ns;

    if (periods == 0 || periods == UINT64_MAX)
        return; /* it has no quota, and never had one */
    ns = field(text, "throttled_usec");
    ns = ns < UINT64_MAX / 1000 ? ns * 1000 : field(text, "throttled_time");
    if (ns != UINT64_MAX)
        *sum = *sum == UINT64_MAX ? ns : *sum + ns;
}

/* What is looked for: a controller's file in version 2 and in version 1, and what becomes of the
 * answer by each. */
struct wanted {
    const char *controller, *dir, *file2, *file1;
    void (*read)(const char *text, uint64_t *answer);
};

static const struct wanted memory = {"memory", "/memory", "/memory.max", "/memory.limit_in_bytes",
                                     least_memory},
                           cpu = {"cpu", "/cpu", "/cpu.stat", "/cpu.stat", all_throttled};

/* root/kind, then the group and all above it, each with a file of this name. */
static void each_above(const struct wanted *w, struct cfg_cgroups *c, const char *root,
                       const char *kind, const char *group, const char *file, uint64_t *answer)
{
    size_t top = strlen(root) + strlen(kind), end = top + strlen(group);

    if (end + strlen(file) >= sizeof(c->path))
        return;
    strcpy(c->path, root);
    strcat(c->path, kind);
    strcat(c->path, group);
    for (;;) {
        while (end > top && c->path[end - 1] == '/')
            end--;
        strcpy(c->path + end, file);
        if (text_of(c, c->path, c->text, sizeof(c->text)))
            w->read(c->text, answer);
        if (end == top)
            return;
        while (end > top && c->path[end - 1] != '/')
            end--;
    }
}

/* Is the name one of these, with commas between? */
static bool has(const char *controllers, const char *end, const char *name)
{
    for (const char *at = controllers; at < end; at++) {
        size_t n = strcspn(at, ",:");

        if (n == strlen(name) && memcmp(at, name, n) == 0)
            return true;
        at += n;
    }
    return false;
}

/* A line is "number:controllers:group"; version 2 has no controllers in its own. */
static uint64_t look(const struct wanted *w, struct cfg_cgroups *c, const char *own,
                     const char *root)
{
    uint64_t answer = UINT64_MAX;
    char *next;

    c->no_fd = false;
    if (!text_of(c, own, c->groups, sizeof(c->groups)))
        return answer;
    for (char *line = c->groups; *line; line = next) {
        char *controllers = strchr(line, ':'), *group;

        next = line + strcspn(line, "\n");
        if (*next)
            *next++ = '\0';
        group = controllers ? strchr(controllers + 1, ':') : NULL;
        if (!group || group[1] != '/')
            continue;
        if (group == controllers + 1)
            each_above(w, c, root, "", group + 1, w->file2, &answer);
        else if (has(controllers + 1, group, w->controller))
            each_above(w, c, root, w->dir, group + 1, w->file1, &answer);
    }
    return answer;
}

uint64_t cfg_cgroup_memory(struct cfg_cgroups *c, const char *own, const char *root)
{
    return look(&memory, c, own, root);
}

uint64_t cfg_cgroup_throttled(struct cfg_cgroups *c, const char *own, const char *root)
{
    return look(&cpu, c, own, root);
}
