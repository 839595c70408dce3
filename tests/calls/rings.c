/* rings.c - rows: liburing's names that make an io_uring. Each ring is gone before the next row. */
#define _GNU_SOURCE
#include "rows.h"

#include <liburing.h>
#include <sys/mman.h>

/* Newer than some liburings. */
int io_uring_setup(unsigned int entries, struct io_uring_params *p);
int io_uring_queue_init_mem(unsigned int entries, struct io_uring *ring, struct io_uring_params *p,
                            void *buf, size_t size);

static void made(int r, struct io_uring *ring)
{
    printf("  ring: %d\n", r >= 0 || r == -ENOSYS || r == -EPERM);
    if (r >= 0)
        SYM(io_uring_queue_exit)(ring);
}

ROW(io_uring_queue_init, )
{
    struct io_uring ring;

    made(SYM(io_uring_queue_init)(4, &ring, 0), &ring);
}

ROW(io_uring_queue_init_params, )
{
    struct io_uring_params p = {0};
    struct io_uring ring;

    made(SYM(io_uring_queue_init_params)(4, &ring, &p), &ring);
}

/* Its ring cannot be looked for, so no stream of the process boards again. */
static void in_memory(void)
{
    struct io_uring_params p = {0};
    struct io_uring ring;
    void *buf = mmap(NULL, 1 << 16, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    must(buf != MAP_FAILED, "mmap");
    printf("  ring: %d\n", SYM(io_uring_queue_init_mem)(4, &ring, &p, buf, 1 << 16) != -ENOENT);
}

ROW(io_uring_queue_init_mem, )
{
    rows_apart(in_memory);
}

ROW(io_uring_setup, )
{
    struct io_uring_params p = {0};
    int fd = SYM(io_uring_setup)(4, &p);

    printf("  ring: %d\n", fd >= 0 || fd == -ENOSYS || fd == -EPERM);
    if (fd >= 0)
        close(fd);
}
