/*
 * verbs_pin_test.c - how much may be pinned, by what the kernel says that is, with libraries
 * that are not there.
 */
#include "tests/shim/shim.h"

#include <errno.h>
#include <linux/capability.h>
#include <linux/io_uring.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "rsock/verbs_int.h"

struct vb_dl vdl;
static unsigned ended; /* how often all that were parting have been ended */

bool vb_dl_leaves_out(void)
{
    return false;
}

void vb_bye_all(void)
{
    ended++;
}

static struct ibv_mr region;

static struct ibv_mr *reg_mr(struct ibv_pd *pd, void *addr, size_t len, int access)
{
    (void)pd, (void)addr, (void)access;
    region.length = len;
    return &region;
}

static int dereg_mr(struct ibv_mr *mr)
{
    (void)mr;
    return 0;
}

enum { KIB = 1024, LIMIT = 1024 * KIB };

static void limited(void)
{
    struct __user_cap_header_struct head = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct caps[2];
    struct rlimit l;

    ASSERT(syscall(SYS_capget, &head, caps) == 0);
    caps[0].effective &= ~(1u << CAP_IPC_LOCK);
    ASSERT(syscall(SYS_capset, &head, caps) == 0);
    ASSERT(getrlimit(RLIMIT_MEMLOCK, &l) == 0);
    if (l.rlim_max < LIMIT)
        SKIP("the limit cannot be so high");
    l.rlim_cur = LIMIT;
    ASSERT(setrlimit(RLIMIT_MEMLOCK, &l) == 0);
    vdl.reg_mr = reg_mr;
    vdl.dereg_mr = dereg_mr;
    ended = 0;
}

static bool pins(size_t n)
{
    struct rsk_own_map map = {.len = n};
    struct ibv_mr *mr = vb_pin(NULL, &map, 0);

    vb_unpin(mr, &map);
    return mr;
}

/* As a driver pins the queues that it has in the process's memory: nothing of it
 * goes through us. */
static bool pinned_by_another(void *memory, size_t n)
{
    struct io_uring_params params = {0};
    struct iovec v = {memory, n};
    int fd = (int)syscall(SYS_io_uring_setup, 4, &params);

    return fd >= 0 && syscall(SYS_io_uring_register, fd, IORING_REGISTER_BUFFERS, &v, 1) == 0;
}

TEST_CASE(verbs_pin, what_others_have_pinned_counts)
{
    const size_t n = 512 * KIB;
    void *memory = mmap(NULL, n, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

    ASSERT(memory != MAP_FAILED);
    limited();
    EXPECT(pins(300 * KIB));
    EXPECT_EQ_INT(ended, 0);
    if (!pinned_by_another(memory, n))
        SKIP("io_uring takes no buffer");
    EXPECT(!pins(300 * KIB));
    EXPECT_EQ_INT(ended, 1); /* they might have had room */
    EXPECT(!vb_pin_queue(300 * KIB));
    EXPECT_EQ_INT(errno, ENOMEM);
    EXPECT(pins(200 * KIB));
    EXPECT(vb_pin_queue(200 * KIB));
    vb_unpin_queue(200 * KIB);
}
