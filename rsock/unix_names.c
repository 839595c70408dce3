/*
 * unix_names.c - see unix_names.h.
 */
#include "rsock/unix_names.h"

#include <stdio.h>
#include <string.h>

#include "rsock/own.h"
#include "rsock/sys.h"

void rsk_unix_names(const char *prefix, void (*fn)(void *arg, const char *line, const char *rest),
                    void *arg)
{
    char want[80], buf[8192];
    size_t have = 0;
    ssize_t n;
    int fd = rsk_own_fd(sys_open(RSK_UNIX_LIST, O_RDONLY | O_CLOEXEC, 0));

    if (fd < 0)
        return;
    snprintf(want, sizeof want, " @%s", prefix);
    while ((n = sys_read(fd, buf + have, sizeof buf - 1 - have)) > 0) {
        char *line = buf, *eol;

        have += (size_t)n;
        buf[have] = 0;
        /* Names may contain any byte; a NUL within one ends our view of that line only. */
        while ((eol = memchr(line, '\n', have - (size_t)(line - buf)))) {
            const char *name;

            *eol = 0;
            name = strstr(line, want);
            if (name)
                fn(arg, line, name + strlen(want));
            line = eol + 1;
        }
        have -= (size_t)(line - buf);
        if (have == sizeof buf - 1)
            have = 0; /* a line as long as that is no name of ours */
        memmove(buf, line, have);
    }
    rsk_own_close(fd);
}
