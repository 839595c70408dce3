/*
 * lab_hub.h - the Ethernet hub between the lab's hosts: one thread that forwards frames
 * between connected stream sockets which carry QEMU's framing.
 */
#ifndef RAILSOCK_LAB_HUB_H
#define RAILSOCK_LAB_HUB_H

struct lab_hub;

/*
 * Starts the hub on n (2 to LAB_MAX_HOSTS) sockets, of which fds[i] is host i + 1's.
 * Takes the sockets over, also on failure. Returns NULL with errno set on failure.
 */
struct lab_hub *lab_hub_start(const int *fds, unsigned n) __attribute__((warn_unused_result));

/* Stops the thread and closes the sockets. NULL is allowed. */
void lab_hub_stop(struct lab_hub *hub);

#endif
