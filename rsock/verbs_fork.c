/*
 * verbs_fork.c - what a forked child has to undo of the parent's RDMA. The hook runs in the child,
 * vb_dev_afresh on the progress thread.
 */
#include <string.h>

#include "rsock/verbs_int.h"

static bool forked;

bool vb_dev_afresh(void)
{
    if (forked && rsk_loop_may_load()) {
        forked = false;
        vb_dl_shut();
    }
    return !forked;
}

/* Reads a line of /proc/self/maps without stdio; false at the end. */
static bool next_line(int fd, char *buf, size_t size, size_t *have, char **line)
{
    char *end;
    ssize_t n;
    size_t used = *line ? strlen(*line) + 1 : 0;

    memmove(buf, buf + used, *have - used);
    *have -= used;
    while (!(end = memchr(buf, '\n', *have))) {
        n = *have < size ? sys_read(fd, buf + *have, size - *have) : 0;
        if (n <= 0)
            return false;
        *have += (size_t)n;
    }
    *end = 0;
    *line = buf;
    return true;
}

static unsigned long hex(const char **s)
{
    unsigned long v = 0;

    for (;; (*s)++) {
        if (**s >= '0' && **s <= '9')
            v = v * 16 + (unsigned long)(**s - '0');
        else if (**s >= 'a' && **s <= 'f')
            v = v * 16 + (unsigned long)(**s - 'a') + 10;
        else
            return v;
    }
}

/* The providers' mappings of queues hold the device open, and with it the parent's QPs after
 * its death. Nothing in a child may use them. */
static void unmap_queues(void)
{
    char buf[4096] = {0}, *line = NULL;
    size_t have = 0;
    int fd = sys_open("/proc/self/maps", O_RDONLY | O_CLOEXEC, 0);

    if (fd < 0)
        return;
    while (next_line(fd, buf, sizeof buf, &have, &line)) {
        const char *s = line;
        unsigned long from, to;

        if (!strstr(line, " /dev/infiniband/uverbs"))
            continue;
        from = hex(&s);
        s++;
        to = hex(&s);
        SYS6(SYS_munmap, from, to - from, 0, 0, 0, 0);
    }
    sys_close(fd);
}

static void in_child(void)
{
    if (vb_dev_forget()) {
        unmap_queues();
        forked = true;
    }
    forked |= vb_cm_is_open();
    vb_dl_close_none();
    vb_parts = NULL;
    for (unsigned i = 0; i < vb_rails_high; i++)
        atomic_store(&vb_rails[i], NULL);
    vb_rails_high = 0;
    vb_kick_forget();
    vb_probe_forget();
    vb_bye_forget();
    vb_listen_forget();
    vb_pin_forget();
    vb_cm_forget();
}

__attribute__((constructor)) static void at_load(void)
{
    rsk_at_fork_child(in_child);
}
