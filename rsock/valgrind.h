/*
 * valgrind.h - valgrind (3.19) does not know every call that we sleep in.
 */
#ifndef RSK_VALGRIND_H
#define RSK_VALGRIND_H

#include <stdbool.h>

/* Does the process run under it? False before the library's constructors. Any thread. */
bool rsk_under_valgrind(void);

#endif
