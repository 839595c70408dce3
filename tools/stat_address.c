/*
 * stat_address.c - addresses of connections whose process has not asked for both, since most do not
 * live until somebody wants to know: by the socket's inode, which /proc shows beside the number,
 * and in the tables of the network namespace, which are read once for all its processes, beside the
 * addresses. What cannot be found out stays unknown.
 */
#include "tools/stat_read.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

uint64_t stat_inode(const struct stat_process *p, int fd)
{
    char path[64], link[64];
    unsigned long long inode = 0;
    ssize_t n;

    snprintf(path, sizeof(path), "/proc/%u/task/%u/fd/%d", p->pid, p->thread, fd);
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

/* A connection whose addresses are wanted, and where they can be found. */
struct unknown {
    uint64_t space; /* inode of the network namespace; 0: not known */
    const struct stat_process *process;
    struct stat_conn *conn;
};

static int by_inode(const void *a, const void *b)
{
    const struct unknown *x = a, *y = b;
    uint64_t one = x->conn->inode, two = y->conn->inode;

    return x->space != y->space ? (x->space > y->space) - (x->space < y->space)
                                : (one > two) - (one < two);
}

/* unknown: those of one namespace. */
static void take_line(const char *line, const struct unknown *unknown, size_t n)
{
    char local[33], peer[33];
    unsigned local_port, peer_port;
    unsigned long long inode;
    struct stat_conn key;
    struct unknown wanted = {unknown->space, NULL, &key}, *found;

    if (sscanf(line, " %*u: %32[0-9A-F]:%x %32[0-9A-F]:%x %*x %*s %*s %*s %*u %*u %llu", local,
               &local_port, peer, &peer_port, &inode) != 5)
        return;
    key.inode = inode;
    found = bsearch(&wanted, unknown, n, sizeof(*unknown), by_inode);
    /* A socket that several processes have is there several times. */
    while (found && found > unknown && by_inode(found - 1, &wanted) == 0)
        found--;
    for (; found && found < unknown + n && by_inode(found, &wanted) == 0; found++)
        if (!take_address(&found->conn->local, local, local_port) ||
            !take_address(&found->conn->peer, peer, peer_port))
            found->conn->local.family = found->conn->peer.family = 0;
}

/* Its own process may have ended since; then another one's of that namespace. */
static FILE *open_table(const struct unknown *unknown, size_t n, const char *table)
{
    char path[64];
    FILE *f = NULL;

    for (size_t i = 0; i < n && !f; i++) {
        snprintf(path, sizeof(path), "/proc/%u/task/%u/net/%s", unknown[i].process->pid,
                 unknown[i].process->thread, table);
        f = fopen(path, "re");
    }
    if (f) /* else it asks for a kilobyte at a time */
        setvbuf(f, NULL, _IOFBF, 64 << 10);
    return f;
}

static void take_tables(const struct unknown *unknown, size_t n)
{
    static const char *const table[] = {"tcp", "tcp6"};
    char *line = NULL;
    size_t size = 0;

    for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++) {
        FILE *f = open_table(unknown, n, table[i]);

        while (f && getline(&line, &size, f) > 0)
            take_line(line, unknown, n);
        if (f)
            fclose(f);
    }
    free(line);
}

static uint64_t namespace_of(const struct stat_process *p)
{
    char path[64];
    struct stat st;

    snprintf(path, sizeof(path), "/proc/%u/task/%u/ns/net", p->pid, p->thread);
    return stat(path, &st) == 0 ? st.st_ino : 0;
}

static size_t note(struct unknown *to, struct stat_process *p)
{
    uint64_t space = 0;
    size_t n = 0;

    for (size_t i = 0; i < p->nconns; i++) {
        if (!p->conns[i].inode)
            continue;
        /* Only root sees others' namespaces; such a process is taken for one of a
         * namespace of its own. */
        if (!space)
            space = namespace_of(p);
        to[n++] = (struct unknown){space ? space : (uint64_t)1 << 32 | p->pid, p, &p->conns[i]};
    }
    return n;
}

void stat_addresses(struct stat_list *list)
{
    struct unknown *unknown;
    size_t n = 0, end;

    for (size_t i = 0; i < list->n; i++)
        for (size_t j = 0; j < list->processes[i].nconns; j++)
            n += list->processes[i].conns[j].inode != 0;
    unknown = n ? calloc(n, sizeof(*unknown)) : NULL;
    if (!unknown)
        return;
    n = 0;
    for (size_t i = 0; i < list->n; i++)
        n += note(unknown + n, &list->processes[i]);
    qsort(unknown, n, sizeof(*unknown), by_inode);
    for (size_t at = 0; at < n; at = end) {
        for (end = at + 1; end < n && unknown[end].space == unknown[at].space;)
            end++;
        take_tables(unknown + at, end - at);
    }
    free(unknown);
}
