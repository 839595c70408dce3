/*
 * stat_address.c - addresses of connections whose process has not asked for them, since most do not live until
 * somebody wants to know: by the socket's inode, which /proc shows beside the number, and in the tables of the
 * process's network namespace beside the addresses. What cannot be found out stays unknown.
 */
#include "tools/stat_read.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

uint64_t stat_inode(uint32_t pid, int fd)
{
    char path[48], link[64];
    unsigned long long inode = 0;
    ssize_t n;

    snprintf(path, sizeof(path), "/proc/%u/fd/%d", pid, fd);
    n = readlink(path, link, sizeof(link) - 1);
    link[n > 0 ? n : 0] = '\0';
    return sscanf(link, "socket:[%llu]", &inode) == 1 ? inode : 0;
}

/* The kernel prints each word of an address as a number of this machine's. */
static bool take_address(struct fb_pub_addr *a, const char *hex, unsigned port)
{
    static const uint8_t mapped[12] = {[10] = 0xff, [11] = 0xff};
    uint32_t word[4] = {0};
    size_t words = strlen(hex) / 8;

    if (strlen(hex) != 8 && strlen(hex) != 32)
        return false;
    for (size_t i = 0; i < words; i++) {
        char digits[9] = "";

        memcpy(digits, hex + 8 * i, 8);
        word[i] = (uint32_t)strtoul(digits, NULL, 16);
    }
    *a = (struct fb_pub_addr){.family = words == 1 ? AF_INET : AF_INET6, .port = (uint16_t)port};
    if (words == 4 && memcmp(word, mapped, sizeof(mapped)) == 0) {
        a->family = AF_INET;
        memcpy(a->addr, &word[3], 4);
    } else {
        memcpy(a->addr, word, 4 * words);
    }
    return true;
}

static int by_inode(const void *a, const void *b)
{
    const struct stat_conn *x = *(struct stat_conn *const *)a, *y = *(struct stat_conn *const *)b;

    return (x->inode > y->inode) - (x->inode < y->inode);
}

static void take_line(const char *line, struct stat_conn **unknown, size_t n)
{
    char local[33], peer[33];
    unsigned local_port, peer_port;
    unsigned long long inode;
    struct stat_conn key, *wanted = &key, **found;

    if (sscanf(line, " %*u: %32[0-9A-F]:%x %32[0-9A-F]:%x %*x %*s %*s %*s %*u %*u %llu", local,
               &local_port, peer, &peer_port, &inode) != 5)
        return;
    key.inode = inode;
    found = bsearch(&wanted, unknown, n, sizeof(struct stat_conn *), by_inode);
    if (found && !(take_address(&(*found)->local, local, local_port) &&
                   take_address(&(*found)->peer, peer, peer_port)))
        (*found)->local.family = (*found)->peer.family = 0;
}

void stat_addresses(struct stat_process *p)
{
    static const char *const table[] = {"tcp", "tcp6"};
    struct stat_conn **unknown;
    size_t n = 0, size = 0;
    char path[48], *line = NULL;

    for (size_t i = 0; i < p->nconns; i++)
        n += p->conns[i].inode != 0;
    unknown = n ? calloc(n, sizeof(struct stat_conn *)) : NULL;
    if (!unknown)
        return;
    n = 0;
    for (size_t i = 0; i < p->nconns; i++)
        if (p->conns[i].inode)
            unknown[n++] = &p->conns[i];
    qsort(unknown, n, sizeof(struct stat_conn *), by_inode);
    for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++) {
        FILE *f;

        snprintf(path, sizeof(path), "/proc/%u/net/%s", p->pid, table[i]);
        f = fopen(path, "re");
        while (f && getline(&line, &size, f) > 0)
            take_line(line, unknown, n);
        if (f)
            fclose(f);
    }
    free(line);
    free(unknown);
}
