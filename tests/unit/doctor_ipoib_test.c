/*
 * doctor_ipoib_test.c - which ports `railsock doctor` takes for ones that librdmacm can find, in a
 * made-up /sys/class/infiniband.
 */
#include "tests/shim/shim.h"
#include "tools/doctor.h"

#include <fcntl.h>
#include <ifaddrs.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static char base[] = "/tmp/doctor_ipoib_test.XXXXXX", port[64];
static char own[64]; /* an interface of this host with an IPv4 address; empty: there is none */

static void put(const char *name, const char *text)
{
    char path[200];
    int fd;

    snprintf(path, sizeof(path), "%s/%s", base, name);
    for (char *c = path + strlen(base) + 1; (c = strchr(c, '/')); *c++ = '/') {
        *c = '\0';
        mkdir(path, 0700);
    }
    fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    ASSERT(fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text));
    close(fd);
}

static void put_of(const char *interface, const char *file, const char *text)
{
    char name[150];

    snprintf(name, sizeof(name), "ibp1s0/device/net/%s/%s", interface, file);
    put(name, text);
}

static void begin(const char *layer)
{
    struct ifaddrs *all;

    strcpy(base + strlen(base) - 6, "XXXXXX");
    ASSERT(mkdtemp(base));
    snprintf(port, sizeof(port), "%s/ibp1s0/ports/1", base);
    put("ibp1s0/ports/1/link_layer", layer);
    ASSERT(getifaddrs(&all) == 0);
    own[0] = '\0';
    for (const struct ifaddrs *a = all; a; a = a->ifa_next)
        if (a->ifa_addr && a->ifa_addr->sa_family == AF_INET)
            snprintf(own, sizeof(own), "%s", a->ifa_name);
    freeifaddrs(all);
}

static void end(void)
{
    char command[80];

    snprintf(command, sizeof(command), "rm -r %s", base);
    EXPECT(system(command) == 0);
}

TEST_CASE(doctor_ipoib, ethernet)
{
    begin("Ethernet\n");
    EXPECT(doc_port_has_address(port));
    end();
}

TEST_CASE(doctor_ipoib, none)
{
    begin("InfiniBand\n");
    EXPECT(!doc_port_has_address(port));
    put_of("no-such-ib0", "type", "32\n");
    EXPECT(!doc_port_has_address(port));
    end();
}

TEST_CASE(doctor_ipoib, with_an_address)
{
    begin("InfiniBand\n");
    if (!*own) {
        end();
        SKIP("no interface has an IPv4 address");
    }
    put_of(own, "type", "1\n"); /* an Ethernet function of the same adapter */
    EXPECT(!doc_port_has_address(port));
    put_of(own, "type", "32\n");
    EXPECT(doc_port_has_address(port));
    put_of(own, "dev_port", "1\n"); /* the second port's */
    EXPECT(!doc_port_has_address(port));
    put_of(own, "dev_port", "0\n");
    EXPECT(doc_port_has_address(port));
    end();
}

/* Of two that are one for redundancy the address is the bond's. */
TEST_CASE(doctor_ipoib, part_of_a_bond)
{
    char link[150], to[100];

    begin("InfiniBand\n");
    if (!own[0]) {
        end();
        SKIP("no interface with an address");
    }
    put_of("no-such-ib0", "type", "32\n");
    snprintf(link, sizeof(link), "%s/ibp1s0/device/net/no-such-ib0/master", base);
    snprintf(to, sizeof(to), "../%s", own);
    ASSERT(symlink(to, link) == 0);
    EXPECT(doc_port_has_address(port));
    ASSERT(unlink(link) == 0 && symlink("../no-such-bond", link) == 0);
    EXPECT(!doc_port_has_address(port));
    end();
}
