/*
 * read.c - a file, or the names in a folder, into the arena, with system calls of our own.
 */
#include "config/parse.h"
#include "config/raw.h"

#include <dirent.h>
#include <errno.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

/* /dev/null stands for no rules. */
static bool readable(const struct stat *st)
{
    return S_ISREG(st->st_mode) || (S_ISCHR(st->st_mode) && st->st_rdev == makedev(1, 3));
}

/* Into buf, as far as it reaches. Count or -errno. */
static ssize_t read_open(int fd, struct cfg_file *f, char *buf, size_t size)
{
    struct stat st;

    if (fstat(fd, &st) < 0)
        return -EIO;
    if (!readable(&st))
        return -EINVAL;
    f->dev = st.st_dev;
    f->ino = st.st_ino;
    if (f->guarded && st.st_uid != 0 && st.st_uid != (uid_t)cfg_raw4(SYS_geteuid, 0, 0, 0, 0))
        return -EPERM;
    return cfg_raw_read(fd, buf, size);
}

int cfg_read_file(struct cfg_rules *r, struct cfg_file *f, size_t most)
{
    struct cfg_arena *a = &r->arena;
    int fd, saved = errno;
    ssize_t n;

    /* Into what is free, so that it need not be known how much comes; the byte after it says
     * whether that was all, and becomes the NUL. */
    if (a->size - a->used <= most + 32)
        return -ENOMEM;
    if (r->read) {
        n = r->read(f->path, a->base + a->used, most + 1);
    } else {
        fd = cfg_raw_open(f->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY, 0);
        r->no_fd |= fd == -EMFILE || fd == -ENFILE;
        if (fd < 0)
            return fd;
        n = read_open(fd, f, a->base + a->used, most + 1);
        cfg_raw_close(fd);
    }
    errno = saved;
    if (n < 0)
        return (int)n;
    if ((size_t)n > most) {
        memset(a->base + a->used, 0, (size_t)n);
        return -EFBIG;
    }
    f->text = cfg_arena_take(a, (size_t)n + 1);
    f->size = (size_t)n;
    return 0;
}

/* ---- folders */

static bool wanted(const char *name, const char *pattern)
{
    if (name[0] == '.' && (*pattern != '.' || !name[1] || (name[1] == '.' && !name[2])))
        return false;
    return cfg_glob(pattern, name);
}

static int put(struct cfg_rules *r, const char *name, struct cfg_name **first)
{
    size_t n = strlen(name);
    struct cfg_name *copy = cfg_arena_take(&r->arena, sizeof(*copy) + n + 1);

    if (!copy)
        return -ENOMEM;
    memcpy(copy->text, name, n);
    while (*first && strcmp((*first)->text, name) < 0)
        first = &(*first)->next;
    copy->next = *first;
    *first = copy;
    return 0;
}

int cfg_read_names(struct cfg_rules *r, const char *folder, const char *pattern,
                   struct cfg_name **first)
{
    /* Whoever calls may have little stack; a name is no longer than 255 bytes. */
    _Alignas(struct dirent64) char buf[1024] = "";
    int fd = cfg_raw_open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NONBLOCK, 0);
    unsigned found = 0;
    long n;
    int err = 0;

    r->no_fd |= fd == -EMFILE || fd == -ENFILE;
    if (fd < 0)
        return fd;
    while (!err && (n = cfg_raw4(SYS_getdents64, fd, (long)buf, sizeof(buf), 0)) != 0) {
        if (n < 0)
            err = (int)n;
        for (long at = 0; !err && at < n;) {
            const struct dirent64 *d = (const void *)(buf + at);

            if (wanted(d->d_name, pattern))
                err = ++found > CFG_MAX_FILES ? -E2BIG : put(r, d->d_name, first);
            at += d->d_reclen;
        }
    }
    cfg_raw_close(fd);
    return err;
}
