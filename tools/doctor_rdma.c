/*
 * doctor_rdma.c - what the verbs wire needs of this host. What the kernel shows of devices and
 * ports is in /sys; librdmacm and libibverbs are opened as the library opens them.
 */
#include "tools/doctor.h"

#include "rsock/sys.h"
#include "rsock/verbs_dl.h"

#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#define SYS_DEVICES "/sys/class/infiniband/*"
#define SYS_PORTS   SYS_DEVICES "/ports/*"

/* What an end of a connection locks, as verbs_rail.c has it: a ring and as much to send from, twice
 * 4 KiB each. With rings of the usual size, and of FB_BULK_RING: README.md, "Limits". */
enum {
    RAIL_BYTES = 150 * 1024,
    BULK_BYTES = 2070 * 1024,
    QUEUE_BYTES = 81 * 1024 /* a queue pair's, and its share of a completion queue's: verbs_pin.c */
};

/* ---- what /sys says */

/* For each path of the pattern; the number of them. */
static unsigned each(const char *pattern, void (*fn)(void *arg, const char *path), void *arg)
{
    glob_t g;
    unsigned n = 0;

    if (glob(pattern, 0, NULL, &g) == 0)
        for (; n < g.gl_pathc; n++)
            fn(arg, g.gl_pathv[n]);
    globfree(&g);
    return n;
}

/* Gathers words about devices or ports, and counts the good ones. */
struct gather {
    char text[300];
    unsigned good, bad;
};

static void add(struct gather *g, bool good, const char *text)
{
    size_t n = strlen(g->text);

    snprintf(g->text + n, sizeof(g->text) - n, "%s%s", n ? ", " : "", text);
    good ? g->good++ : g->bad++;
}

/* At least one must be good; what is not is worth a note. */
static void conclude(const struct gather *g, struct doc_result *r)
{
    doc_say(r, !g->good ? DOC_FAIL : g->bad ? DOC_NOTE : DOC_OK, "%s", g->text);
}

/* "rxe0/1" of a port's path. */
static void port_name(const char *path, char name[64])
{
    const char *device = path + strlen("/sys/class/infiniband/"), *port = strrchr(path, '/') + 1;

    snprintf(name, 64, "%.*s/%s", (int)strcspn(device, "/"), device, port);
}

static bool port_file(const char *path, const char *file, char *line, size_t size)
{
    char name[300];

    snprintf(name, sizeof(name), "%s/%s", path, file);
    return doc_line(name, line, size);
}

static bool is_active(const char *path)
{
    char state[40];

    return port_file(path, "state", state, sizeof(state)) && strstr(state, "ACTIVE");
}

static bool without_devices(const struct doctor *d, struct doc_result *r)
{
    if (!d->devices)
        doc_say(r, DOC_SKIP, "no RDMA device");
    return !d->devices;
}

static void take_device(void *arg, const char *path)
{
    char type[40], text[120];
    bool iwarp;

    port_file(path, "node_type", type, sizeof(type));
    iwarp = strstr(type, "RNIC") != NULL;
    snprintf(text, sizeof(text), "%.60s%s", strrchr(path, '/') + 1,
             iwarp ? " (iWARP, which is not used)" : "");
    add(arg, !iwarp, text);
}

void doc_DEVICES(struct doctor *d, struct doc_result *r)
{
    struct gather g = {0};

    if (each(SYS_DEVICES, take_device, &g) == 0) {
        doc_say(r, DOC_FAIL, "no RDMA device: connections to other hosts stay on TCP");
    } else {
        if (g.good && g.bad)
            add(&g, false, "and while it is there, nothing is accepted over RDMA");
        conclude(&g, r);
    }
    d->devices = g.good > 0;
}

static void take_port(void *arg, const char *path)
{
    char name[64], state[40], physical[40], text[200];

    port_name(path, name);
    port_file(path, "state", state, sizeof(state));
    port_file(path, "phys_state", physical, sizeof(physical));
    snprintf(text, sizeof(text), "%s %.30s, %.30s", name, state + strspn(state, "0123456789: "),
             physical + strspn(physical, "0123456789: "));
    add(arg, is_active(path), text);
}

void doc_PORTS(struct doctor *d, struct doc_result *r)
{
    struct gather g = {0};

    if (without_devices(d, r))
        return;
    each(SYS_PORTS, take_port, &g);
    conclude(&g, r);
}

static void take_layer(void *arg, const char *path)
{
    char name[64], layer[40], text[200];
    bool found;

    if (!is_active(path))
        return;
    port_name(path, name);
    port_file(path, "link_layer", layer, sizeof(layer));
    found = doc_port_has_address(path);
    snprintf(text, sizeof(text), "%s %s%s%s", name, layer,
             strcmp(layer, "Ethernet") == 0 ? " (RoCE)" : "",
             found ? "" : ", without an IPoIB interface that has an IP address");
    add(arg, *layer && found, text);
}

void doc_LINK_LAYER(struct doctor *d, struct doc_result *r)
{
    struct gather g = {0};

    if (without_devices(d, r))
        return;
    each(SYS_PORTS, take_layer, &g);
    if (*g.text)
        conclude(&g, r);
    else
        doc_say(r, DOC_SKIP, "no port is active");
}

/* RoCE: the GIDs that come from IP addresses, version 2. InfiniBand: any. */
static void take_gids(void *arg, const char *path)
{
    char name[64], file[64], gid[64], type[40], layer[40], ndev[40] = "", text[200], seen[64] = "";
    unsigned n = 0;
    bool ethernet;

    if (!is_active(path))
        return;
    port_name(path, name);
    port_file(path, "link_layer", layer, sizeof(layer));
    ethernet = strcmp(layer, "Ethernet") == 0;
    for (unsigned i = 0; i < 256; i++) {
        snprintf(file, sizeof(file), "gids/%u", i);
        if (!port_file(path, file, gid, sizeof(gid)))
            break;
        snprintf(file, sizeof(file), "gid_attrs/types/%u", i);
        if (strspn(gid, "0:") == strlen(gid) || !port_file(path, file, type, sizeof(type)))
            continue;
        if (ethernet && strcmp(type, "RoCE v2") != 0)
            continue;
        /* An IPv6 link-local address is there without anybody's doing. */
        if (ethernet && strncmp(gid, "fe80:", 5) == 0)
            continue;
        snprintf(file, sizeof(file), "gid_attrs/ndevs/%u", i);
        port_file(path, file, ndev, sizeof(ndev));
        if (!n++)
            snprintf(seen, sizeof(seen), "%s", gid);
    }
    if (n)
        snprintf(text, sizeof(text), "%s has %u by addresses of %s: %s%s", name, n,
                 *ndev ? ndev : "the fabric", seen, n > 1 ? "..." : "");
    else
        snprintf(text, sizeof(text), "%s has none by an IP address", name);
    add(arg, n > 0, text);
}

void doc_GIDS(struct doctor *d, struct doc_result *r)
{
    struct gather g = {0};

    if (without_devices(d, r))
        return;
    each(SYS_PORTS, take_gids, &g);
    if (*g.text)
        conclude(&g, r);
    else
        doc_say(r, DOC_SKIP, "no port is active");
}

static void take_file(void *arg, const char *path)
{
    bool open = faccessat(AT_FDCWD, path, R_OK | W_OK, AT_EACCESS) == 0;
    char text[200];

    snprintf(text, sizeof(text), "%s%s%s", path, open ? "" : ": ", open ? "" : strerror(errno));
    add(arg, open, text);
}

void doc_PERMISSIONS(struct doctor *d, struct doc_result *r)
{
    struct gather g = {0};

    if (without_devices(d, r))
        return;
    take_file(&g, "/dev/infiniband/rdma_cm");
    if (each("/dev/infiniband/uverbs*", take_file, &g) == 0)
        add(&g, false, "no /dev/infiniband/uverbs*");
    doc_say(r, g.bad ? DOC_FAIL : DOC_OK, "%s", g.text);
}

void doc_MEMLOCK(struct doctor *d, struct doc_result *r)
{
    static const char words[] = "%llu KiB: room for %llu rails over RDMA in a process, %llu if the "
                                "adapter's queues count as mlx5's do, or %llu of bulk streams";
    unsigned long long room, rails, fewer;
    struct rlimit l;

    (void)d;
    if (getrlimit(RLIMIT_MEMLOCK, &l) < 0) {
        doc_say(r, DOC_FAIL, "the limit cannot be read: %s", strerror(errno));
    } else if (l.rlim_cur == RLIM_INFINITY) {
        doc_say(r, DOC_OK, "unlimited");
    } else if (sys_capable(CAP_IPC_LOCK) && sys_in_first_users()) { /* as verbs_pin.c */
        doc_say(r, DOC_OK, "unlimited (CAP_IPC_LOCK)");
    } else {
        room = (unsigned long long)l.rlim_cur / 4 * 3;
        rails = room / RAIL_BYTES;
        fewer = room / (RAIL_BYTES + QUEUE_BYTES);
        doc_say(r, rails ? fewer < 16 ? DOC_NOTE : DOC_OK : DOC_FAIL, words,
                (unsigned long long)l.rlim_cur / 1024, rails, fewer,
                room / (BULK_BYTES + QUEUE_BYTES));
    }
}

/* ---- what the libraries say */

void doc_LIBRARIES(struct doctor *d, struct doc_result *r)
{
    d->libraries = vb_dl_open() == 0;
    if (d->libraries)
        doc_say(r, DOC_OK, "librdmacm and libibverbs");
    else
        doc_say(r, DOC_FAIL, "librdmacm.so.1 or libibverbs.so.1 cannot be loaded, or is too old");
}

static bool without_libraries(const struct doctor *d, struct doc_result *r)
{
    if (without_devices(d, r))
        return true;
    if (!d->libraries)
        doc_say(r, DOC_SKIP, "no libraries");
    return !d->libraries;
}

/* Calls fn for each device that can be opened; false: there is none. */
static bool each_context(void (*fn)(struct ibv_context *, struct gather *), struct gather *g)
{
    int n = 0;
    struct ibv_context **all = vdl.get_devices(&n);

    for (int i = 0; all && i < n; i++)
        fn(all[i], g);
    if (all)
        vdl.free_devices(all);
    return n > 0;
}

static void take_mtu(struct ibv_context *ctx, struct gather *g)
{
    /* What ibv_query_port() does where the library is not older than its header. */
    struct verbs_context *v = verbs_get_ctx_op(ctx, query_port);
    struct ibv_device_attr device;
    char text[120];

    if (!v || vdl.query_device(ctx, &device))
        return;
    for (uint8_t i = 1; i <= device.phys_port_cnt; i++) {
        struct ibv_port_attr port = {0};

        if (v->query_port(ctx, i, &port, sizeof(port)) || port.state != IBV_PORT_ACTIVE)
            continue;
        snprintf(text, sizeof(text), "%.40s/%u %u, of %u", vdl.get_device_name(ctx->device), i,
                 128u << port.active_mtu, 128u << port.max_mtu);
        add(g, port.active_mtu == port.max_mtu, text);
    }
}

void doc_MTU(struct doctor *d, struct doc_result *r)
{
    struct gather g = {0};

    if (without_libraries(d, r))
        return;
    if (!each_context(take_mtu, &g) || !*g.text)
        doc_say(r, DOC_SKIP, "no port is active, or none can be opened");
    else if (g.bad)
        doc_say(r, DOC_NOTE, "%s bytes: an interface's MTU of 4200 has room for 4096", g.text);
    else
        doc_say(r, DOC_OK, "%s bytes", g.text);
}

void doc_RDMA_CM(struct doctor *d, struct doc_result *r)
{
    struct sockaddr_in any = {.sin_family = AF_INET};
    struct rdma_event_channel *channel;
    struct rdma_cm_id *id = NULL;

    if (without_libraries(d, r))
        return;
    channel = vdl.create_event_channel();
    if (!channel)
        doc_say(r, DOC_FAIL, "cannot be opened: %s", strerror(errno));
    else if (vdl.create_id(channel, &id, NULL, RDMA_PS_TCP) < 0 ||
             vdl.bind_addr(id, (struct sockaddr *)&any) < 0 || vdl.listen(id, 1) < 0)
        doc_say(r, DOC_FAIL, "cannot listen: %s", strerror(errno));
    else
        doc_say(r, DOC_OK, "can listen, on port %u this time", ntohs(vdl.get_src_port(id)));
    if (id)
        vdl.destroy_id(id);
    if (channel)
        vdl.destroy_event_channel(channel);
}

static void take_memory(struct ibv_context *ctx, struct gather *g)
{
    const char *name = vdl.get_device_name(ctx->device);
    struct ibv_pd *pd = vdl.alloc_pd(ctx);
    void *memory = NULL;
    struct ibv_mr *mr = NULL;
    char text[160];

    if (pd && posix_memalign(&memory, 4096, RAIL_BYTES) == 0)
        mr = vdl.reg_mr(pd, memory, RAIL_BYTES, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
    if (mr)
        snprintf(text, sizeof(text), "%d KiB on %.40s", RAIL_BYTES / 1024, name);
    else
        snprintf(text, sizeof(text), "not on %.40s: %s", name, strerror(errno));
    add(g, mr != NULL, text);
    if (mr)
        vdl.dereg_mr(mr);
    free(memory);
    if (pd)
        vdl.dealloc_pd(pd);
}

void doc_MEMORY(struct doctor *d, struct doc_result *r)
{
    struct gather g = {0};

    if (without_libraries(d, r))
        return;
    if (each_context(take_memory, &g))
        conclude(&g, r);
    else
        doc_say(r, DOC_FAIL, "no device can be opened: %s", strerror(errno));
}
