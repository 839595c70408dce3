/*
 * forms_send.h - the forms of sending: each goes through another entry of the library.
 */
#ifndef CONFORM_FORMS_SEND_H
#define CONFORM_FORMS_SEND_H

#include "tests/conform/kit.h"

struct sform {
    const char *name;
    ssize_t (*put)(int fd, const void *buf, size_t n);
    ssize_t (*put_with)(int fd, const void *buf, size_t n, int flags); /* NULL: takes no MSG_* */
};

#define SFORMS        9
#define SFORMS_SOCKET 4 /* the first ones take flags */
extern const struct sform sforms[SFORMS];

/* Sends and prints the result. */
ssize_t send_by(const struct sform *f, int fd, const char *text);

#endif
