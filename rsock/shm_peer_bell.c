/*
 * shm_peer_bell.c - the bells of peers, which this process rings. Progress thread,
 * except shm_peer_ring.
 */
#include <stdlib.h>
#include <sys/stat.h>

#include "config/reason.h"
#include "rsock/shm_page.h"
#include "rsock/shm_wire.h"
#include "rsock/strange.h"

struct shm_peer_bell {
    struct shm_page *page;
    struct rsk_own_map map;
    int event;
    bool socket;
    bool trusted; /* its maker, when it came */
    /* Who and which: a page handed on by a third process must not displace its owner's. */
    uint32_t uid, pid;
    dev_t dev;
    ino_t ino;
    uint32_t refs;
    struct shm_peer_bell *next;
};

static struct shm_peer_bell *peer_bells;
static struct shm_peer_bell *known(const struct stat *st, const struct shm_cred *cred)
{
    struct shm_peer_bell *b;

    for (b = peer_bells; b; b = b->next)
        if (b->ino == st->st_ino && b->dev == st->st_dev && b->uid == cred->uid &&
            b->pid == cred->pid && b->trusted == cred->trusted)
            return shm_peer_bell_again(b);
    return NULL;
}

int shm_peer_bell_get(int page, int event, const struct shm_cred *cred, struct shm_peer_bell **bell)
{
    struct shm_peer_bell *b = NULL;
    int reason = RSN_PEER_PROTOCOL;
    struct stat st = {0};
    bool socket;

    /* The seals first, which no file system of the peer's making is asked for. */
    if (sys_fcntl(page, F_GET_SEALS, 0) < 0 ||
        SYS6(SYS_newfstatat, page, "", &st, AT_EMPTY_PATH, 0, 0))
        goto out;
    b = known(&st, cred);
    if (b || !shm_sealed_good(page, SHM_PAGE_SIZE))
        goto out;
    if (!shm_peer_event_good(event, cred, &socket)) {
        if (cred->unseen && !socket)
            reason = RSN_NO_PROC;
        goto out;
    }
    reason = RSN_NO_MEMORY;
    b = calloc(1, sizeof *b);
    if (!b)
        goto out;
    b->page = shm_page_map(page, &b->map);
    if (!b->page) {
        free(b);
        b = NULL;
        goto out;
    }
    b->event = event;
    event = -1;
    b->socket = socket;
    b->trusted = cred->trusted;
    b->uid = cred->uid;
    b->pid = cred->pid;
    b->dev = st.st_dev;
    b->ino = st.st_ino;
    b->refs = 1;
    b->next = peer_bells;
    peer_bells = b;
out:
    strange_close(page);
    strange_close(event);
    *bell = b;
    return b ? 0 : reason;
}

struct shm_peer_bell *shm_peer_bell_again(struct shm_peer_bell *b)
{
    b->refs++;
    return b;
}

void shm_peer_bell_put(struct shm_peer_bell *b)
{
    struct shm_peer_bell **at = &peer_bells;

    if (!b || --b->refs)
        return;
    while (*at != b)
        at = &(*at)->next;
    *at = b->next;
    rsk_own_unmap(&b->map);
    strange_close(b->event);
    free(b);
}

void shm_peer_ring(struct shm_peer_bell *b, uint32_t slot)
{
    uint32_t arming = b ? shm_page_ring(b->page, slot) : 0;

    if (!arming)
        return;
    if (!b->socket) {
        shm_page_fire(b->event);
    } else {
        atomic_fetch_add_explicit(&b->page->sent, 1, memory_order_relaxed);
        if (sys_send(b->event, "", 1, MSG_DONTWAIT | MSG_NOSIGNAL) != 1)
            atomic_fetch_sub_explicit(&b->page->sent, 1, memory_order_relaxed);
    }
    shm_page_woken(b->page, arming);
}

void shm_peer_bells_forget(void)
{
    peer_bells = NULL;
}
