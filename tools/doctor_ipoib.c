/*
 * doctor_ipoib.c - whether a port of an RDMA device is found by IP addresses. Every InfiniBand port
 * has a GID by itself, but librdmacm finds it by an address of its IPoIB interface alone.
 */
#include "tools/doctor.h"

#include <glob.h>
#include <ifaddrs.h>
#include <net/if_arp.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* An interface's, which may have a label as ib0:1, or one's of its partitions, as ib0.8001. An IPv6
 * link-local address is there without anybody's doing. */
static bool is_its_address(const struct ifaddrs *a, const char *name)
{
    size_t n = strlen(name);

    if (!a->ifa_addr || strncmp(a->ifa_name, name, n) != 0 || !strchr(".:", a->ifa_name[n]))
        return false;
    if (a->ifa_addr->sa_family == AF_INET6)
        return !IN6_IS_ADDR_LINKLOCAL(
            &((const struct sockaddr_in6 *)(const void *)a->ifa_addr)->sin6_addr);
    return a->ifa_addr->sa_family == AF_INET;
}

static bool named_has_address(const char *name)
{
    struct ifaddrs *all;
    bool has = false;

    if (getifaddrs(&all) < 0)
        return false;
    for (const struct ifaddrs *a = all; a && !has; a = a->ifa_next)
        has = is_its_address(a, name);
    freeifaddrs(all);
    return has;
}

/* interface: its folder. One that is part of a bond has the bond's. */
static bool has_address(const char *interface)
{
    char path[400], master[400];
    ssize_t n;

    if (named_has_address(strrchr(interface, '/') + 1))
        return true;
    snprintf(path, sizeof(path), "%s/master", interface);
    n = readlink(path, master, sizeof(master) - 1);
    if (n <= 0)
        return false;
    master[n] = 0;
    return named_has_address(strrchr(master, '/') ? strrchr(master, '/') + 1 : master);
}

/* interface: its folder. An adapter with two ports has the interfaces of both. */
static bool is_of_port(const char *interface, unsigned long port)
{
    char path[400], line[40];

    snprintf(path, sizeof(path), "%s/type", interface);
    if (!doc_line(path, line, sizeof(line)) || strtoul(line, NULL, 10) != ARPHRD_INFINIBAND)
        return false;
    snprintf(path, sizeof(path), "%s/dev_port", interface);
    return !doc_line(path, line, sizeof(line)) || strtoul(line, NULL, 10) + 1 == port;
}

bool doc_port_has_address(const char *port)
{
    const char *number = strrchr(port, '/') + 1;
    char path[400], layer[40];
    glob_t g;
    bool has = false;

    snprintf(path, sizeof(path), "%s/link_layer", port);
    if (!doc_line(path, layer, sizeof(layer)) || strcmp(layer, "InfiniBand") != 0)
        return true;
    snprintf(path, sizeof(path), "%s/../../device/net/*", port);
    if (glob(path, 0, NULL, &g) == 0)
        for (size_t i = 0; i < g.gl_pathc && !has; i++)
            has =
                is_of_port(g.gl_pathv[i], strtoul(number, NULL, 10)) && has_address(g.gl_pathv[i]);
    globfree(&g);
    return has;
}
