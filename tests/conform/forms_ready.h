/*
 * forms_ready.h - the forms of asking what a descriptor is ready for.
 */
#ifndef CONFORM_FORMS_READY_H
#define CONFORM_FORMS_READY_H

#include "tests/conform/kit.h"

struct qform {
    const char *name;
    /* What fd is ready for, of all there is, as POLL*; waits ms for anything (-1: for ever). A
     * negative result is an error. select tells no more than IN, OUT and PRI. */
    int (*ask)(int fd, int events, int ms);
};

#define QFORMS 8
extern const struct qform qforms[QFORMS];

#define ALL (POLLIN | POLLOUT | POLLPRI | POLLRDHUP)

/* Asks without waiting, and prints. */
int ready_by(const struct qform *f, int fd, int events);

#endif
