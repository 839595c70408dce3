/*
 * log_in_data.c - a program that has closed its first three numbers, and whose file of data has
 * number 2 then, with a library that has much to say: what is in it the program has written. What
 * it makes number 2 itself is not looked at.
 */
#include "say.h"

#include <fcntl.h>

int main(int argc, char **argv)
{
    char text[4096] = "", number[16];
    int out, data, p[2];

    if (argc < 2) {
        setenv("RAILSOCK_LOG", "debug", 1);
        snprintf(number, sizeof(number), "%d", fcntl(1, F_DUPFD, 10));
        for (int fd = 0; fd < 3; fd++)
            close(fd);
        execl("/proc/self/exe", argv[0], number, (char *)NULL);
        _exit(99);
    }
    out = atoi(argv[1]);
    for (int fd = 0; fd < 2; fd++)
        must(open("/dev/null", O_RDWR) == fd, "null");
    data = open("/tmp", O_TMPFILE | O_RDWR | O_APPEND, 0600);
    dprintf(out, "data is number %d\n", data);
    must(write(data, "first,", 6) == 6, "write");
    tcp_pair(p);
    must(write(data, " last", 5) == 5, "write");
    must(pread(data, text, sizeof(text) - 1, 0) > 0, "read");
    dprintf(out, "data: %.60s\n", text);
    close(p[0]);
    close(p[1]);
    return 0;
}
