/*
 * log.c - one line of log: formatted into one buffer on the stack, one write. It may be
 * called in a signal handler, while any lock is held and before other constructors have
 * run, so no malloc and no stdio stream. The formats in use need neither: no floating
 * point, no wide strings.
 */
#include "config/log.h"

#include "config/env.h"
#include "config/raw.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

#define LINE_SIZE 512

int cfg_log_level = CFG_LOG_ERROR;

static const char *level_name(int level)
{
    static const char *const names[] = {"error", "warn", "info", "debug"};

    return names[level < CFG_LOG_ERROR ? 0 : level > CFG_LOG_DEBUG ? 3 : level - 1];
}

/*
 * The file is opened for each line and not kept: a descriptor of ours that stays open would
 * be in the way of programs that close or count theirs. It may be a fifo, hence NONBLOCK.
 */
static void put(const char *line, size_t n)
{
    int fd = STDERR_FILENO;

    if (cfg.log_file[0])
        fd = cfg_raw_open(
            cfg.log_file,
            O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NOCTTY | O_NONBLOCK, 0600);
    if (fd < 0) {
        cfg_raw_write(STDERR_FILENO, line, n);
        return;
    }
    cfg_raw_write(fd, line, n);
    if (fd != STDERR_FILENO)
        cfg_raw_close(fd);
}

void cfg_log_write(int level, const char *fmt, ...)
{
    char line[LINE_SIZE];
    struct timespec ts;
    int saved = errno;
    size_t n;
    va_list ap;

    clock_gettime(CLOCK_REALTIME, &ts);
    /* The last place is kept for the end of line. */
    n = (size_t)snprintf(line, LINE_SIZE - 1, "railsock[%d] %lld.%06ld %s: ", (int)getpid(),
                         (long long)ts.tv_sec, ts.tv_nsec / 1000, level_name(level));
    va_start(ap, fmt);
    n += (size_t)vsnprintf(line + n, LINE_SIZE - 1 - n, fmt, ap);
    va_end(ap);
    if (n > LINE_SIZE - 2)
        n = LINE_SIZE - 2;
    /* A newline inside, from a program's name say, would make two lines of one. */
    for (size_t i = 0; i < n; i++)
        if ((unsigned char)line[i] < ' ' || line[i] == 0x7f)
            line[i] = '?';
    line[n++] = '\n';
    put(line, n);
    errno = saved;
}
