/*
 * valgrind.c - see valgrind.h. The answer is known from the start: programs make an environment of
 * their own (nginx, to show their state in ps).
 */
#include "rsock/valgrind.h"

#include <stdlib.h>
#include <string.h>

static bool under;

__attribute__((constructor)) static void at_load(void)
{
    const char *preload = getenv("LD_PRELOAD");

    under = preload && strstr(preload, "/vgpreload_");
}

bool rsk_under_valgrind(void)
{
    return under;
}
