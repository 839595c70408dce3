/*
 * sockmap.c - a socket is put into a BPF map of sockets, where programs of the kernel's may take
 * its bytes or send them elsewhere: from then on TCP carries it. A number in a map of another kind
 * names no socket.
 */
#include "pair.h"

#include <linux/bpf.h>

static int new_map(enum bpf_map_type type)
{
    union bpf_attr a = {.map_type = type, .key_size = 4, .value_size = 4, .max_entries = 4};

    return (int)syscall(SYS_bpf, BPF_MAP_CREATE, &a, sizeof(a));
}

static long put_into(int map, uint32_t key, uint32_t value)
{
    union bpf_attr a = {.map_fd = (uint32_t)map,
                        .key = (uintptr_t)&key,
                        .value = (uintptr_t)&value,
                        .flags = BPF_ANY};

    return syscall(SYS_bpf, BPF_MAP_UPDATE_ELEM, &a, sizeof(a));
}

/* Does what one end sends go by TCP? */
static bool by_tcp(int p[2], int i)
{
    unsigned long long before = tcp_sent(p[i]);

    pass(p, i);
    return tcp_sent(p[i]) > before;
}

int main(void)
{
    int sockets = new_map(BPF_MAP_TYPE_SOCKMAP), hashed = new_map(BPF_MAP_TYPE_SOCKHASH);
    int numbers = new_map(BPF_MAP_TYPE_ARRAY), p[2];

    if (sockets < 0 || hashed < 0 || numbers < 0) {
        printf("no BPF here: %s\n", strerrorname_np(errno));
        return 0;
    }
    tcp_pair(p);
    must(put_into(numbers, 0, (uint32_t)p[0]) == 0, "an array");
    if (mode_rail())
        on_rail(p);
    SHOW(put_into(sockets, 0, (uint32_t)p[0]));
    SHOW(put_into(hashed, 0, (uint32_t)p[1]));
    printf("by TCP: %d %d\n", by_tcp(p, 0), by_tcp(p, 1));
    for (int i = 0; i < 20; i++)
        pass(p, i % 2);
    printf("by TCP: %d %d\n", by_tcp(p, 0), by_tcp(p, 1));
    SHOW(put_into(sockets, 1, 12345));
    SHOW(put_into(12345, 1, (uint32_t)p[0]));
    close(p[0]);
    SHOW(recv(p[1], &sockets, 1, 0));
    return 0;
}
