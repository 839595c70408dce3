/*
 * stat_part.h - what the tests of `railsock stat` share: a file as a process shows it, made here in
 * a temporary folder. The process is this one.
 */
#ifndef TESTS_STAT_PART_H
#define TESTS_STAT_PART_H

#include "tests/shim/shim.h"
#include "tools/stat_read.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define SLOTS 600 /* more than are read at once */

static char base[] = "/tmp/stat_test.XXXXXX", folder[64], file[96];
static char complaint[256];
static size_t complaints;

static inline void complain(const char *path, const char *why)
{
    EXPECT_STREQ(path, file);
    snprintf(complaint, sizeof(complaint), "%s", why);
    complaints++;
}

/* Reads the folder and expects that nothing of it is shown. */
static inline void nothing(const char *why)
{
    struct stat_list list;

    complaints = 0;
    complaint[0] = '\0';
    EXPECT_EQ_INT(stat_read(base, 0, complain, &list), 0);
    EXPECT_EQ_INT(list.n, 0);
    EXPECT_STREQ(complaint, why);
    EXPECT_EQ_INT(complaints, *why ? 1 : 0);
    stat_free(&list);
}

static inline uint64_t start_time_of(pid_t pid)
{
    char text[1024], *p;
    ssize_t n;
    int fd;

    snprintf(text, sizeof(text), "/proc/%d/stat", (int)pid);
    fd = open(text, O_RDONLY | O_CLOEXEC);
    n = read(fd, text, sizeof(text) - 1);
    close(fd);
    text[n > 0 ? n : 0] = '\0';
    p = strrchr(text, ')');
    ASSERT(p);
    for (int field = 2; field < 22; field++)
        p = strchr(p + 1, ' ');
    return strtoull(p, NULL, 10);
}

/* What the case writes, wholly or in part. */
static struct image {
    _Alignas(64) char bytes[sizeof(struct fb_pub_file) + SLOTS * sizeof(struct fb_pub)];
} image;
static struct fb_pub_rail rails[SLOTS];

static inline struct fb_pub_file *head(void)
{
    return (struct fb_pub_file *)image.bytes;
}

/* A folder with a good file's image of this process, with nslots slots, none in use. */
static inline void begin(uint32_t nslots)
{
    strcpy(base + strlen(base) - 6, "XXXXXX");
    ASSERT(mkdtemp(base));
    snprintf(folder, sizeof(folder), "%s/railsock-%u", base, (unsigned)geteuid());
    ASSERT(mkdir(folder, 0700) == 0);
    snprintf(file, sizeof(file), "%s/%d", folder, (int)getpid());
    memset(&image, 0, sizeof(image));
    memset(rails, 0, sizeof(rails));
    *head() = (struct fb_pub_file){
        .magic = FB_PUB_MAGIC,
        .version = FB_PUB_VERSION,
        .pid = (uint32_t)getpid(),
        .start_time = start_time_of(getpid()),
        .pid_namespace = fb_pub_own_namespace(),
        .program = "prog",
        .nslots = nslots,
    };
    complaints = 0;
    complaint[0] = '\0';
}

static inline void put(const char *path, size_t size)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

    ASSERT(fd >= 0);
    ASSERT(write(fd, image.bytes, size) == (ssize_t)size);
    close(fd);
}

static inline void put_whole(void)
{
    int fd;

    put(file, sizeof(struct fb_pub_file) + head()->nslots * sizeof(struct fb_pub));
    fd = open(file, O_WRONLY | O_CLOEXEC);
    ASSERT(fd >= 0);
    ASSERT(pwrite(fd, rails, sizeof(rails), (off_t)FB_PUB_RAILS) == sizeof(rails));
    close(fd);
}

static inline void end(void)
{
    unlink(file);
    EXPECT(rmdir(folder) == 0);
    EXPECT(rmdir(base) == 0);
}

static inline void use_slot(unsigned i, int fd)
{
    struct fb_pub *s = &head()->slot[i];

    s->gen = 5;
    s->fd = fd;
    s->local = (struct fb_pub_addr){.family = AF_INET, .port = 80};
    inet_pton(AF_INET, "127.0.0.1", s->local.addr);
    s->peer = (struct fb_pub_addr){.family = AF_INET6, .port = 40000};
    inet_pton(AF_INET6, "fd00::7", s->peer.addr);
    s->path_tx = s->path_rx = FB_PATH_SHM;
    s->role = 1;
    s->tx = 100;
    s->rx = 200;
    rails[i].rail_tx = 90;
    rails[i].rail_rx = UINT64_MAX;
    rails[i].boarded_at = 1700000000123456789u;
    rails[i].switches = 2;
}

#endif
