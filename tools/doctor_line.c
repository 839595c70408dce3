/*
 * doctor_line.c - what the kernel says in one line.
 */
#include "tools/doctor.h"

#include <fcntl.h>
#include <string.h>
#include <unistd.h>

bool doc_line(const char *path, char *line, size_t size)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : read(fd, line, size - 1);

    if (fd >= 0)
        close(fd);
    line[n > 0 ? n : 0] = '\0';
    line[strcspn(line, "\n")] = '\0';
    return n > 0;
}
