/*
 * cgroup.h - how much memory the process's control groups let it have.
 */
#ifndef CFG_CGROUP_H
#define CFG_CGROUP_H

#include <stdbool.h>
#include <stdint.h>

#define CFG_CGROUP_OWN  "/proc/self/cgroup"
#define CFG_CGROUP_ROOT "/sys/fs/cgroup"

/* The least limit of the memory control groups that the process is in, in bytes, of version 2 and 1; UINT64_MAX: none is known.
 * own: as CFG_CGROUP_OWN; root: where control groups are mounted. In a container only the root may be there of the path that own
 * says. Blocks for file system calls only. *no_fd: no descriptor was free, and it is to be asked again. One thread at a time. */
uint64_t cfg_cgroup_memory(const char *own, const char *root, bool *no_fd);

#endif
