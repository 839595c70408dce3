/*
 * lab_run.h - one lab, from the start of its hosts to their end.
 */
#ifndef RAILSOCK_LAB_RUN_H
#define RAILSOCK_LAB_RUN_H

#include <signal.h>

#include "lab.h"

/*
 * Boots the hosts, runs the command or the shell, ends the hosts. scratch is an absolute
 * path. Blocks until all is over; nothing that it started is left then. Reports on
 * stderr what went wrong. The signals in caught, which the caller has blocked, end the
 * lab, but for SIGWINCH; *signal is then the signal, else 0. Returns the exit status.
 */
int lab_run(const struct lab_options *options, const struct lab_image *image, const char *scratch,
            const sigset_t *caught, int *signal) __attribute__((warn_unused_result));

#endif
