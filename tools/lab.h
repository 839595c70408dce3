/*
 * lab.h - what the parts of `railsock lab` agree on: its limits, its exit statuses
 * and the options of one call.
 */
#ifndef RAILSOCK_LAB_H
#define RAILSOCK_LAB_H

#include <stdbool.h>
#include <stdint.h>

#define LAB_MAX_HOSTS 4

/* Exit statuses of `railsock lab` itself; every other one is the command's. */
enum {
    LAB_EXIT_USAGE = 2,
    LAB_EXIT_TIMEOUT = 124,
    LAB_EXIT_FAILED = 125, /* a host did not boot, panicked or vanished */
};

/* One way to get an RDMA device in a host. */
struct lab_device {
    const char *name;
    const char *kind;    /* as `rdma link add ... type` has it; "" for no device */
    const char *refused; /* why it cannot be used, or NULL */
};

struct lab_options {
    unsigned hosts;
    const struct lab_device *device;
    unsigned timeout_s;  /* from the command's start; 0: none */
    unsigned memory_mb;  /* of each host */
    const char *scratch; /* NULL: a temporary directory, removed at the end */
    bool verbose;        /* show the consoles */
    bool shell;          /* a terminal on host 1 instead of a command on all */
    char **command;      /* NULL-terminated; empty with shell */
};

/* Where `tools/lab-image` says the image is. Freed by lab_image_free(). */
struct lab_image {
    char *kernel;
    char *initrd;
    char *modules;
};

/* Milliseconds of the monotonic clock. */
int64_t lab_now_ms(void);

#endif
