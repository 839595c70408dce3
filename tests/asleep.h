/*
 * asleep.h - how a thread is, or a process by its main thread: for those who have to
 * come when it sleeps.
 */
#ifndef TESTS_ASLEEP_H
#define TESTS_ASLEEP_H

#include <dirent.h>
#include <fcntl.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* False: there is no such thread any more. */
static inline bool proc_says(int tid, const char *file, char *text, size_t size)
{
    char path[64];
    ssize_t n;
    int fd;

    snprintf(path, sizeof(path), "/proc/%d/%s", tid, file);
    fd = open(path, O_RDONLY | O_CLOEXEC);
    n = fd < 0 ? -1 : read(fd, text, size - 1);
    close(fd);
    if (n <= 0)
        return false;
    text[n] = 0;
    return true;
}

/* As the kernel says: 'S' asleep, 'R' running, 'Z' or '?' ended. */
static inline char state_of(int tid)
{
    char text[512], *end;

    if (!proc_says(tid, "stat", text, sizeof(text)))
        return '?';
    end = strrchr(text, ')');
    return end ? end[2] : '?';
}

static inline bool at_work(char state)
{
    return state == 'R' || state == 'D';
}

/* How often it has gone to sleep, while it sleeps; 0 while it does not. */
static inline unsigned long sleep_of(int tid)
{
    char text[4096];
    const char *state, *count;

    if (!proc_says(tid, "status", text, sizeof(text)))
        return 0;
    state = strstr(text, "\nState:\t");
    count = strstr(text, "\nvoluntary_ctxt_switches:\t");
    return state && count && state[8] == 'S' ? 1 + strtoul(count + 26, NULL, 10) : 0;
}

/* Or has ended. The thread writes its number there before the call. */
static inline void until_it_sleeps(_Atomic int *tid)
{
    while (!*tid || at_work(state_of(*tid)))
        sched_yield();
}

/* Is one of the process's other threads at work, or waits for a processor? */
static inline bool others_at_work(void)
{
    DIR *tasks = opendir("/proc/self/task");
    const struct dirent *of;
    bool run = false;

    while (tasks && !run && (of = readdir(tasks))) {
        int tid = atoi(of->d_name);

        run = tid > 0 && tid != gettid() && at_work(state_of(tid));
    }
    if (tasks)
        closedir(tasks);
    return run;
}

#endif
