/*
 * has_a_thread.c - a plugin that makes a thread while it is loaded, and waits for it.
 */
#include "echoes.h"

__attribute__((constructor)) static void begin(void)
{
    pthread_t t;

    must(pthread_create(&t, NULL, echoes, NULL) == 0 && pthread_join(t, NULL) == 0, "thread");
}
