/*
 * strange.h - descriptors that a stranger has sent, or can send into. The kernel lets who drops the
 * last reference to a socket wait for as long as its SO_LINGER says, and a socket may lie in a
 * message that nobody takes: whoever reads that message without room for its descriptors, or closes
 * the socket that it waits in, drops them. So they are taken, made harmless and closed.
 *
 * What is no socket is closed as it is. A file system that the stranger makes himself (FUSE) may
 * make that take for ever.
 */
#ifndef RSK_STRANGE_H
#define RSK_STRANGE_H

#include <stddef.h>
#include <sys/types.h>

#define STRANGE_FDS 253 /* the kernel's SCM_MAX_FD: as many as one message has */

/* Reads at most n bytes of a unix socket, or one message, and does not block. What recvmsg()
 * returns, and its flags in *flags. *count descriptors came with it, noted in own.h, and the
 * caller's; those that could not be noted are closed, and MSG_CTRUNC says so, as where the process
 * may have no more. Any thread. */
ssize_t strange_recv(int sock, void *to, size_t n, int fds[STRANGE_FDS], unsigned *count,
                     int *flags);
/* Closes it, noted or not, without waiting; what lies in a unix socket is taken out before. A
 * negative one is ignored. Any thread. */
void strange_close(int fd);
/* Of level SOL_SOCKET; -1: it is no socket, or has no such. */
int strange_option(int fd, int name);

#endif
