/*
 * shm_peer.h - who is at the other end of a rendezvous, and what he may be trusted with.
 * Progress thread.
 */
#ifndef RSK_SHM_PEER_H
#define RSK_SHM_PEER_H

#include <stdbool.h>
#include <stdint.h>

/* As the kernel has it. */
struct shm_cred {
    uint32_t uid, pid;
    /* He could stop or kill us in any case: root, or our own user in all of our uids, in our own
     * PID namespace. What such alone may give us is an eventfd, or a futex word to sleep on. */
    bool trusted;
    /* And is our own user in all of his uids, with our root directory as far as is known: he
     * trusts us, too. */
    bool alike;
    /* He might be trusted by his uid, but his /proc/PID/status cannot be read: in a chroot, say. */
    bool unseen;
};

/* Who has connected, or listens; not trusted yet. False: the kernel does not say. */
bool shm_peer_cred(int sock, struct shm_cred *);
/* Sets trusted and alike. Reads a file. */
void shm_peer_judge(struct shm_cred *);
/* Is fd, which he has passed, one that we can wake him by and that cannot make us wait? What it is
 * goes to *socket. */
bool shm_peer_event_good(int fd, const struct shm_cred *, bool *socket);

#endif
