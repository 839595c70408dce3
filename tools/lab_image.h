/*
 * lab_image.h - finds the lab's scripts and has them make or refresh the image.
 */
#ifndef RAILSOCK_LAB_IMAGE_H
#define RAILSOCK_LAB_IMAGE_H

#include "lab.h"

/*
 * Runs tools/lab-image and takes its answer. Blocks, on the first call for as long as a
 * download takes. Reports failures on stderr itself. Returns 0 or -errno.
 */
int lab_image_get(struct lab_image *image) __attribute__((warn_unused_result));

void lab_image_free(struct lab_image *image);

/* Whether QEMU is installed; says what to do if not. */
bool lab_image_have_qemu(void);

#endif
