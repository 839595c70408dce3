/*
 * shown.h - what the library shows of this process's own connections, for programs here that look
 * at it while they measure: the file that `railsock stat` reads (pub.h).
 */
#ifndef BENCH_SHOWN_H
#define BENCH_SHOWN_H

#include "ipoib_fallback/pub.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/* NULL: no library, or nothing is shown. Of the slots that are there now. */
static inline const struct fb_pub_file *shown(void)
{
    char path[64];
    struct stat st;
    const struct fb_pub_file *f;
    int file;

    snprintf(path, sizeof(path), FB_PUB_DIR "/%d", geteuid(), getpid());
    file = open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0 || fstat(file, &st) < 0)
        return NULL;
    f = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_SHARED, file, 0);
    close(file);
    if (f == MAP_FAILED || f->magic != FB_PUB_MAGIC || f->version != FB_PUB_VERSION)
        return NULL;
    return f;
}

/* What is shown of a slot once its connection has wanted a rail. */
static inline const struct fb_pub_rail *shown_rail(const struct fb_pub_file *f, uint32_t slot)
{
    return (const struct fb_pub_rail *)(const void *)((const char *)f + FB_PUB_RAILS) + slot;
}

#endif
