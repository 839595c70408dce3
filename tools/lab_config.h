/*
 * lab_config.h - what a host is told at its start.
 */
#ifndef RAILSOCK_LAB_CONFIG_H
#define RAILSOCK_LAB_CONFIG_H

#include <stddef.h>

#include "lab.h"

/* Ends each output stream of a host; see lab-guest. */
#define LAB_TOKEN_SIZE 40

/*
 * The configuration of host `number` (from 1): assignments in bash's syntax. scratch is
 * an absolute path. Returns the text, to be freed, or NULL with errno set.
 */
char *lab_config_make(unsigned number, const struct lab_options *options,
                      const struct lab_image *image, const char *scratch, const char *token,
                      size_t *len) __attribute__((warn_unused_result));

#endif
