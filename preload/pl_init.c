/*
 * pl_init.c - where the library wakes up: at load, or at the first connection when some
 * other library's constructor makes one before that.
 */
#include "preload/pl_own.h"

#include "config/env.h"
#include "config/log.h"
#include "rsock/sys.h"

#include <dlfcn.h>
#include <link.h>
#include <string.h>

/* The log's descriptor has the lowest number as long as it is there. */
static void around_a_line(bool begins)
{
    if (begins)
        rsk_own_enter();
    else
        rsk_own_leave();
}

/* As the Makefile links it. */
static bool is_railsock(const struct link_map *m)
{
    const ElfW(Dyn) *d = m->l_ld;
    ElfW(Addr) strings = 0, name = 0;

    for (; d && d->d_tag != DT_NULL; d++) {
        if (d->d_tag == DT_STRTAB) /* relocated, but for what nobody may write to */
            strings = d->d_un.d_ptr < m->l_addr ? m->l_addr + d->d_un.d_ptr : d->d_un.d_ptr;
        else if (d->d_tag == DT_SONAME)
            name = d->d_un.d_val;
    }
    return strings && name && strcmp((const char *)(strings + name), "librailsock.so") == 0;
}

/* Another file's library that stands between the program and this one, as with two installations:
 * each would take the other's ring and sockets for the program's. Its path, or NULL. */
static const char *another_first(void)
{
    struct link_map *m;
    Dl_info here;

    if (!dladdr1((void *)pl_started, &here, (void **)&m, RTLD_DL_LINKMAP) || !is_railsock(m))
        return NULL;
    while ((m = m->l_prev) != NULL)
        if (is_railsock(m))
            return m->l_name;
    return NULL;
}

static _Atomic int state; /* 0: nothing yet, 1: under way, 2: done */

bool pl_started(void)
{
    const char *first;
    int none = 0;

    if (__builtin_expect(atomic_load_explicit(&state, memory_order_acquire) == 2, 1))
        return true;
    /* Under way: a connection made from inside it, or by another thread meanwhile, is plain TCP. */
    if (!atomic_compare_exchange_strong(&state, &none, 1))
        return false;
    cfg_log_note_stderr();
    first = another_first();
    if (first) {
        atomic_store(&pl_passive, true);
        cfg_init();
        log_warn("%s is loaded before this one, which does nothing", first);
        return false;
    }
    cfg_log_around = around_a_line;
    pl_process_init();
    cfg_init();
    atomic_store_explicit(&state, 2, memory_order_release);
    return true;
}

__attribute__((constructor)) static void at_load(int argc, char **argv)
{
    pl_ready();
    if (pl_started() && argc > 1)
        cfg_note_arguments(argv);
}
