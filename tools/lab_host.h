/*
 * lab_host.h - starts and ends the QEMU process of one lab host.
 */
#ifndef RAILSOCK_LAB_HOST_H
#define RAILSOCK_LAB_HOST_H

#include <sys/types.h>

#include "lab.h"

/* The byte streams between a host and us. */
enum lab_channel {
    LAB_CONSOLE, /* the kernel's, and QEMU's own messages */
    LAB_CTL,     /* lines; see lab-guest */
    LAB_OUT,
    LAB_ERR,
    LAB_TTY, /* only of a host that runs a shell */
    LAB_CHANNELS
};

struct lab_qemu {
    pid_t pid;            /* 0: not running */
    int fd[LAB_CHANNELS]; /* our ends, nonblocking; -1: closed */
};

/*
 * Starts host `number` (from 1). net_fd is its cable, which stays the caller's; -1 for
 * one with nothing at the other end. The process dies with the calling thread.
 * Returns 0 or -errno. A QEMU that cannot run shows itself by the end of LAB_CONSOLE.
 */
int lab_host_start(struct lab_qemu *qemu, unsigned number, const struct lab_options *options,
                   const struct lab_image *image, const char *scratch, int net_fd)
    __attribute__((warn_unused_result));

/* Ends the process at once, waits for it, and closes the channels. May be repeated. */
void lab_host_stop(struct lab_qemu *qemu);

/* Whether hardware virtualisation can be used; without it QEMU translates. */
bool lab_have_kvm(void);

#endif
