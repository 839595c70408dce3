/*
 * read.c - a file into the arena, with system calls of our own.
 */
#include "config/parse.h"
#include "config/raw.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

static ssize_t raw_read(int fd, void *p, size_t n)
{
    return cfg_raw4(SYS_read, fd, (long)p, (long)n, 0);
}

/* /dev/null stands for no rules. */
static bool readable(const struct stat *st)
{
    return S_ISREG(st->st_mode) || (S_ISCHR(st->st_mode) && st->st_rdev == makedev(1, 3));
}

/* Into buf, as far as it reaches. Count or -errno. */
static ssize_t read_open(int fd, struct cfg_file *f, char *buf, size_t size)
{
    struct stat st;
    size_t used = 0;
    ssize_t n = 1;

    if (fstat(fd, &st) < 0)
        return -EIO;
    if (!readable(&st))
        return -EINVAL;
    f->dev = st.st_dev;
    f->ino = st.st_ino;
    if (f->guarded && st.st_uid != 0 && st.st_uid != (uid_t)cfg_raw4(SYS_geteuid, 0, 0, 0, 0))
        return -EPERM;
    while (n > 0 && used < size) {
        n = raw_read(fd, buf + used, size - used);
        used += n > 0 ? (size_t)n : 0;
    }
    return n < 0 ? n : (ssize_t)used;
}

int cfg_read_file(struct cfg_rules *r, struct cfg_file *f, size_t most)
{
    struct cfg_arena *a = &r->arena;
    int fd, saved = errno;
    ssize_t n;

    /* Into what is free, so that it need not be known how much comes; the byte after it says whether that
     * was all, and becomes the NUL. */
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
