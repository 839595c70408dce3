/*
 * room.c - see room.h. What pubfile.c needs: a folder, a file as long as it may ever become, and
 * room for its beginning.
 */
#include "tools/room.h"

#include "ipoib_fallback/pub.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <sys/resource.h>
#include <sys/statfs.h>
#include <unistd.h>

/* It begins with the first chunk of slots. The file of `run --report` has a second name, and tmpfs
 * counts names. */
enum { SLOTS = 256, NAMES = 2 };

static bool is_limited(void)
{
    struct rlimit l;

    return getrlimit(RLIMIT_FSIZE, &l) == 0 &&
           l.rlim_cur < FB_PUB_RAILS + (size_t)FB_MAX_STREAMS * sizeof(struct fb_pub_rail);
}

/* The folder: 1 if it is there, 0 if not, -1 if it is not this user's alone. */
static int look_at_folder(char *dir, size_t size)
{
    struct stat st;

    snprintf(dir, size, FB_PUB_DIR, (unsigned)geteuid());
    if (lstat(dir, &st) < 0)
        return 0;
    return S_ISDIR(st.st_mode) && st.st_uid == geteuid() && (st.st_mode & 0777) == 0700 ? 1 : -1;
}

const char *room_lacking(void)
{
    const uint64_t need = sizeof(struct fb_pub_file) + SLOTS * sizeof(struct fb_pub);
    static char not_own[100];
    char dir[48];
    struct statfs fs;
    int folder = look_at_folder(dir, sizeof(dir));

    if (is_limited())
        return "a file size limit is too low (ulimit -f)";
    if (statfs("/dev/shm", &fs) < 0)
        return "there is no /dev/shm";
    if (folder < 0) {
        snprintf(not_own, sizeof(not_own), "the folder %s is not this user's alone", dir);
        return not_own;
    }
    if (faccessat(AT_FDCWD, "/dev/shm", W_OK | X_OK, AT_EACCESS) < 0)
        return "/dev/shm cannot be written to";
    /* Of a file system without a limit both are 0. */
    if (fs.f_blocks && (uint64_t)fs.f_bavail * (uint64_t)fs.f_bsize < need)
        return "/dev/shm is full";
    if (fs.f_files && fs.f_ffree < NAMES + (folder ? 0u : 1u))
        return "/dev/shm has no inodes left";
    return NULL;
}

const char *room_missing(const char *lacking, uint64_t others, char text[ROOM_MISSING])
{
    int n = snprintf(text, ROOM_MISSING, "%s", lacking ? lacking : "");

    if (others)
        snprintf(text + n, ROOM_MISSING - (size_t)n,
                 "%s%" PRIu64 " process%s of another version of railsock", n ? "; " : "", others,
                 others == 1 ? "" : "es");
    return *text ? text : NULL;
}
