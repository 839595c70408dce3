/*
 * io.h - what is done to the anchor, the kernel's TCP socket: io.c, or what tests put in its place.
 */
#ifndef FB_IO_H
#define FB_IO_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>
#include <sys/uio.h>

struct fb_io {
    ssize_t (*recv)(int fd, const struct iovec *v, int cnt, uint64_t limit, int flags);
    ssize_t (*send)(int fd, const struct iovec *v, int cnt, int flags);
    short (*poll)(int fd, short events);
    /* bytes that the application's side gave the kernel and took from it, by the kernel's own
     * count; false: not ESTABLISHED, or in motion */
    bool (*counters)(int fd, uint64_t *sent, uint64_t *received);
    /* the first of them by another of the kernel's counts, which is exact also after segments that
     * found no route; false: in motion */
    bool (*given)(int fd, bool connected, uint64_t *sent);
    /* how many more than so many bytes have been received, by whomever; 0 also if
     * that is not known */
    int64_t (*beyond)(int fd, uint64_t received);
    int (*inq)(int fd);
    bool (*at_mark)(int fd); /* what is next is urgent data */
    /* Bytes that have arrived, ever, and one for FIN; 0: not known. */
    uint64_t (*received)(int fd);
    uint64_t (*room)(int fd); /* so much can lie unread, and more still comes */
    /* so much can be sent and unread (SO_SNDBUF); 0: the application has not said */
    uint32_t (*bound)(int fd);
    void (*push)(int fd);        /* what is held back goes now */
    void (*acknowledge)(int fd); /* what has been received, now */
    int (*shutdown)(int fd, int how);
    bool (*aborts)(int fd); /* the application wants its close to reset: SO_LINGER{1,0} */
    void (*abort)(int fd);  /* the next close shall reset */
    int (*keep)(int fd);    /* another descriptor of the socket, or -errno */
    /* The application is about to close this number, and the socket has another one: until it is
     * closed it stands for nothing, so that calls of other threads on it get EBADF. */
    void (*vacate)(int fd);
    void (*close)(int fd,
                  bool others); /* others: may have the socket, too, and its options are theirs */
    /* whoever closes it last would wait now: SO_LINGER with a time, and bytes that are not
     * acknowledged */
    bool (*lingers)(int fd);
    bool (*waits)(int fd); /* the kernel has not delivered everything, or more may come */
    void (*wait)(int fd, short events, uint64_t ns); /* fd -1: only the time */
    uint64_t (*now)(void);
};
extern struct fb_io fb_io;

/* Takes the number that who closes with something left to send gets where the process may have none
 * more. Any thread. */
void io_spare(void);
void io_forget(void); /* forked child */

#endif
