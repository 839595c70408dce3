/*
 * stat_life.h - whether the process lives that a file names, and whose it is.
 */
#ifndef TOOLS_STAT_LIFE_H
#define TOOLS_STAT_LIFE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

enum stat_life {
    STAT_ENDED,
    STAT_RUNS,
    STAT_HEADLESS, /* it runs, but its main thread has ended (pthread_exit) */
    STAT_HIDDEN,   /* it has not been collected, and /proc does not show it (hidepid) */
};

/* *start, field 22 of /proc/PID/stat, is set unless it has ended or is hidden. */
enum stat_life stat_life(uint32_t pid, uint64_t *start);
/* A thread that has not ended, of a process whose main thread has. */
uint32_t stat_thread(uint32_t pid);
/* The real, effective, saved and file system user. False: not known. */
bool stat_users(uint32_t pid, unsigned ids[4]);
/* Does it run, or was it started, as this user? What root has written is believed: a daemon may
 * have become another user since. */
bool stat_is_users(uint32_t pid, uid_t uid);
/* A decimal number without sign or leading zero, as we name our files. */
bool stat_number(const char *text, uint32_t *value);

#endif
