/*
 * log.h - the library's log: one fixed buffer, one write to stderr or the file of
 * RAILSOCK_LOG, errno saved. Never to stdout. Any thread; not on a data path. The level is
 * compared before anything is formatted.
 */
#ifndef CFG_LOG_H
#define CFG_LOG_H

enum { CFG_LOG_ERROR = 1, CFG_LOG_WARN, CFG_LOG_INFO, CFG_LOG_DEBUG };

extern int cfg_log_level;

__attribute__((format(printf, 2, 3))) void cfg_log_write(int level, const char *fmt, ...);

#define LOG_AT(level, ...)                                 \
    do {                                                   \
        if (__builtin_expect(cfg_log_level >= (level), 0)) \
            cfg_log_write((level), __VA_ARGS__);           \
    } while (0)
#define log_error(...) LOG_AT(CFG_LOG_ERROR, __VA_ARGS__)
#define log_warn(...)  LOG_AT(CFG_LOG_WARN, __VA_ARGS__)
#define log_info(...)  LOG_AT(CFG_LOG_INFO, __VA_ARGS__)
#define log_debug(...) LOG_AT(CFG_LOG_DEBUG, __VA_ARGS__)

#endif
