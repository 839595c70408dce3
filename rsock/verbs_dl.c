/*
 * verbs_dl.c - opens librdmacm and libibverbs and fills vdl.
 */
#include "rsock/verbs_dl.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>

#include "config/log.h"
#include "rsock/loop.h"
#include "rsock/own.h"
#include "rsock/sys.h"

struct vb_dl vdl;

static const struct {
    bool cma;
    const char *version, *symbol;
    size_t at;
} symbols[] = {
#define ibv false
#define cma true
#define V(lib, version, symbol, field, ret, params) \
    {lib, version, symbol, offsetof(struct vb_dl, field)},
    RSK_VERBS_SYMBOLS(V)
#undef V
#undef ibv
#undef cma
};

#define ROOM (32u << 20) /* more than both libraries, libnl and the drivers map */

static int result = 1; /* of the last try; 1: none yet */
static void *lib[2];

bool vb_dl_room(void)
{
    void *p = mmap(NULL, ROOM, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

    if (p == MAP_FAILED) {
        log_info("verbs: the address space has no room for the libraries");
        return false;
    }
    munmap(p, ROOM);
    return true;
}

static bool leaves_out;

bool vb_dl_leaves_out(void)
{
    return leaves_out;
}

/* ibv_fork_init does nothing where the kernel copies pinned pages at a fork, but
 * before version 35. */
static bool fork_is_hard(void)
{
    void *p = dlvsym(lib[0], "ibv_is_fork_initialized", "IBVERBS_1.13");
    enum ibv_fork_status (*status)(void);

    if (!p)
        return true;
    memcpy(&status, &p, sizeof p);
    return status() == IBV_FORK_ENABLED;
}

static bool no_descriptor(void)
{
    int fd = rsk_own_fd(sys_eventfd(0, EFD_CLOEXEC));

    if (fd >= 0)
        rsk_own_close(fd);
    return fd == -EMFILE || fd == -ENFILE;
}

static void shut_both(void)
{
    for (int i = 0; i < 2; i++)
        if (lib[i])
            dlclose(lib[i]);
}

int vb_dl_open(void)
{
    if (result <= 0)
        return result;
    if (rsk_loop_may_load() && !vb_dl_room())
        return -ENOMEM;
    result = -ENOENT;
    if (!rsk_loop_may_load())
        return result;
    rsk_own_enter(); /* for the numbers of the files */
    lib[0] = dlopen("libibverbs.so.1", RTLD_NOW | RTLD_LOCAL);
    lib[1] = dlopen("librdmacm.so.1", RTLD_NOW | RTLD_LOCAL);
    rsk_own_leave();
    if ((!lib[0] || !lib[1]) && no_descriptor()) {
        shut_both();
        result = 1;
        return -EMFILE;
    }
    if (!lib[0] || !lib[1]) {
        log_info("verbs: %s cannot be loaded", lib[0] ? "librdmacm.so.1" : "libibverbs.so.1");
        return result;
    }
    for (size_t i = 0; i < sizeof symbols / sizeof *symbols; i++) {
        void *p = dlvsym(lib[symbols[i].cma], symbols[i].symbol, symbols[i].version);

        if (!p) {
            log_info("verbs: no symbol %s@%s", symbols[i].symbol, symbols[i].version);
            return result;
        }
        memcpy((char *)&vdl + symbols[i].at, &p, sizeof p);
    }
    /* ibv_fork_init(3): providers keep queues in private memory; before Linux 5.12 a fork
     * would detach them from the adapter. Fails harmlessly when the program used verbs first. */
    rsk_own_enter(); /* it asks the kernel by a socket */
    leaves_out = vdl.fork_init() == 0 && fork_is_hard();
    rsk_own_leave();
    return result = 0;
}

enum { CONTEXTS = 16 };

static struct ibv_context *contexts[CONTEXTS];
static unsigned n_contexts;

void vb_dl_close_none(void)
{
    n_contexts = 0;
}

void vb_dl_close_later(struct ibv_context *ctx)
{
    if (n_contexts < CONTEXTS)
        contexts[n_contexts++] = ctx;
}

void vb_dl_shut(void)
{
    unsigned n = n_contexts;

    n_contexts = 0;
    if (result)
        return;
    dlclose(lib[1]); /* with its locks, which a thread of the parent's may have had */
    /* It keeps contexts that were opened under other credentials for as long as it is loaded. */
    if (dlopen("librdmacm.so.1", RTLD_NOW | RTLD_LOCAL | RTLD_NOLOAD)) {
        log_info("verbs: librdmacm.so.1 is used by somebody else, and cannot be opened afresh");
        dlclose(lib[0]);
        result = -ENOENT;
        return;
    }
    result = 1;
    rsk_own_enter(); /* for the numbers that it closes */
    for (unsigned i = 0; i < n; i++)
        vdl.close_device(contexts[i]);
    rsk_own_leave();
    dlclose(lib[0]);
}
