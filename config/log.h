/*
 * log.h - the library's log: one fixed buffer, one write to stderr or the file of
 * RAILSOCK_LOG, errno saved. Never to stdout. Any thread; not on a data path. The level is
 * compared before anything is formatted.
 */
#ifndef CFG_LOG_H
#define CFG_LOG_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

enum { CFG_LOG_ERROR = 1, CFG_LOG_WARN, CFG_LOG_INFO, CFG_LOG_DEBUG };

extern _Atomic int cfg_log_level;

/* Where lines go from now on, and down to which level; for the rules' log statement, unless
 * RAILSOCK_LOG is set. file, which must live for ever: "" for stderr, CFG_LOG_SYSLOG, or a path. */
extern const char CFG_LOG_SYSLOG[];
void cfg_log_to(int level, const char *file);

/* Called with true before a line's file or socket is opened, and with false when it is closed;
 * NULL: nobody. */
extern void (*cfg_log_around)(bool begins);

/* A line to number 2, in one write, and no SIGPIPE or SIGXFSZ for the program, which has written
 * nothing. Nothing where that is a TCP connection, or what it has become without
 * cfg_log_note_stderr. Any thread. */
void cfg_log_stderr(const char *line, size_t n);
/* Number 2 is what the program wants it to be: at load, and when it has been put there by name. */
void cfg_log_note_stderr(void);

/* What an error means, in words; number is for one without. Not strerror(3), which may translate:
 * that takes memory and locks. */
enum { CFG_ERRNO_WORDS = 24 };
const char *cfg_errno_words(int err, char number[static CFG_ERRNO_WORDS]);

__attribute__((format(printf, 2, 3))) void cfg_log_write(int level, const char *fmt, ...);

#define LOG_AT(level, ...)                                                                 \
    do {                                                                                   \
        if (__builtin_expect(                                                              \
                atomic_load_explicit(&cfg_log_level, memory_order_relaxed) >= (level), 0)) \
            cfg_log_write((level), __VA_ARGS__);                                           \
    } while (0)
#define log_error(...) LOG_AT(CFG_LOG_ERROR, __VA_ARGS__)
#define log_warn(...)  LOG_AT(CFG_LOG_WARN, __VA_ARGS__)
#define log_info(...)  LOG_AT(CFG_LOG_INFO, __VA_ARGS__)
#define log_debug(...) LOG_AT(CFG_LOG_DEBUG, __VA_ARGS__)

#endif
