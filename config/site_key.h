/*
 * site_key.h - a file with the key that both ends of a connection must have before it may board: 32
 * hexadecimal digits, 128 bits, and a line's end.
 */
#ifndef CFG_SITE_KEY_H
#define CFG_SITE_KEY_H

#include <stdbool.h>
#include <stdint.h>

/* 0, or -errno of what the file is not: -EACCES this user may not read it, -EPERM it belongs to
 * another user, -EMLINK others may read or change it, -EINVAL not a file, -EBADMSG not a key; else
 * the kernel's. No libc call that the library interposes. */
int cfg_site_key_read(const char *path, uint8_t key[16]);

#endif
