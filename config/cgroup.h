/*
 * cgroup.h - what the process's control groups, of version 2 and 1, let it have: memory
 * and processor time.
 *
 * own: as CFG_CGROUP_OWN; root: where control groups are mounted, as CFG_CGROUP_ROOT. In a
 * container only the root may be there of the path that own says. Blocks for file system calls
 * only. One thread at a time on the same struct cfg_cgroups.
 */
#ifndef CFG_CGROUP_H
#define CFG_CGROUP_H

#include <stdbool.h>
#include <stdint.h>

#define CFG_CGROUP_OWN  "/proc/self/cgroup"
#define CFG_CGROUP_ROOT "/sys/fs/cgroup"

/* Room for what is read: the caller's, because he may have little stack. */
struct cfg_cgroups {
    /* How a file is opened to be read, which returns a descriptor or -errno, and closed; NULL: at
     * the lowest number, where a thread beside may meet it. */
    int (*open)(const char *name);
    void (*close)(int fd);
    char groups[4096], path[1280], text[1024];
    bool no_fd; /* no descriptor was free for the last question: it is to be asked again */
};

/* The least memory limit of those groups, in bytes; UINT64_MAX: none is known. */
uint64_t cfg_cgroup_memory(struct cfg_cgroups *, const char *own, const char *root);
/* For how many ns all of them, on all processors, have been held back because their CPU quota was
 * used up; UINT64_MAX: none that is known has ever had a quota. */
uint64_t cfg_cgroup_throttled(struct cfg_cgroups *, const char *own, const char *root);

#endif
