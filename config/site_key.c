/*
 * site_key.c - see site_key.h.
 */
#include "config/site_key.h"

#include "config/raw.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>

enum { DIGITS = 32 };

static int digit(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    if (c >= 'a' && c <= 'f')
        return c - 'a' + 10;
    return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

static int parse(const char *text, ssize_t n, uint8_t key[16])
{
    bool whole = n == DIGITS || (n == DIGITS + 1 && text[DIGITS] == '\n') ||
                 (n == DIGITS + 2 && memcmp(text + DIGITS, "\r\n", 2) == 0);

    if (!whole)
        return -EBADMSG;
    for (int i = 0; i < DIGITS; i += 2) {
        int high = digit(text[i]), low = digit(text[i + 1]);

        if (high < 0 || low < 0)
            return -EBADMSG;
        key[i / 2] = (uint8_t)(high << 4 | low);
    }
    return 0;
}

/* What a program of another user could read is no secret, and what he could change
 * is his choice. */
static int trusted(const struct stat *st)
{
    if (!S_ISREG(st->st_mode))
        return -EINVAL;
    if (st->st_uid != 0 && st->st_uid != (uid_t)cfg_raw4(SYS_geteuid, 0, 0, 0, 0))
        return -EPERM;
    return st->st_mode & (S_IRWXO | S_IWGRP) ? -EMLINK : 0;
}

int cfg_site_key_read(const char *path, uint8_t key[16])
{
    char text[DIGITS + 3] = ""; /* one more than there may be */
    struct stat st;
    int fd = cfg_raw_open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY, 0), err;
    ssize_t n;

    if (fd < 0)
        return fd;
    err = fstat(fd, &st) < 0 ? -EIO : trusted(&st);
    if (!err) {
        n = cfg_raw4(SYS_read, fd, (long)text, sizeof(text), 0);
        err = n < 0 ? (int)n : parse(text, n, key);
        explicit_bzero(text, sizeof(text));
    }
    cfg_raw_close(fd);
    return err;
}
