/*
 * forms_recv.h - the forms of receiving: each goes through another entry of the library.
 */
#ifndef CONFORM_FORMS_RECV_H
#define CONFORM_FORMS_RECV_H

#include "tests/conform/kit.h"

struct rform {
    const char *name;
    ssize_t (*get)(int fd, void *buf, size_t n);
    bool flags; /* takes MSG_* */
    ssize_t (*get_with)(int fd, void *buf, size_t n, int flags);
};

#define RFORMS 9
extern const struct rform rforms[RFORMS];

/* Gets up to n (at most 300) bytes and prints them, or the error. Returns what the
 * call returned. */
ssize_t take_by(const struct rform *f, int fd, size_t n);

#endif
