/*
 * joins_in.c - a plugin that uses TCP while it is loaded, when a thread of the program's has been
 * told to do so too, and has got as far as it gets by itself. PLUGIN_BESIDE: that thread, which
 * waits for a byte, and where it gets one.
 */
#include "echoes.h"

/* Or has ended. It is another sleep than the one before, and the same at several looks. */
static void until_it_goes_no_further(int tid, unsigned long before)
{
    enum { LOOKS = 4 };
    unsigned long sleeps = before;

    for (int same = 0; same < LOOKS && state_of(tid) != '?'; sched_yield()) {
        unsigned long now = sleep_of(tid);

        same = now && now != before && now == sleeps ? same + 1 : 0;
        sleeps = now;
    }
}

__attribute__((constructor)) static void begin(void)
{
    const char *beside = getenv("PLUGIN_BESIDE");
    unsigned long before;
    int tid, go;

    must(beside && sscanf(beside, "%d %d", &tid, &go) == 2, "PLUGIN_BESIDE");
    while (!(before = sleep_of(tid)))
        sched_yield();
    must(write(go, "", 1) == 1, "go");
    until_it_goes_no_further(tid, before);
    echoes(NULL);
}
