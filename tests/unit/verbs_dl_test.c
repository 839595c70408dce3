/*
 * verbs_dl_test.c - the libraries for RDMA cannot be opened where no descriptor is left. That is so
 * for a moment: they are opened once there is one.
 */
#include "tests/shim/shim.h"

#include "rsock/verbs_dl.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

/* The lowest number that is free. */
static int next_number(void)
{
    int fd = open("/dev/null", O_RDONLY | O_CLOEXEC);

    close(fd);
    return fd;
}

TEST_CASE(verbs_dl, no_descriptor_is_left_for_a_moment)
{
    struct rlimit was, none;

    ASSERT_EQ_INT(getrlimit(RLIMIT_NOFILE, &was), 0);
    none = was;
    none.rlim_cur = (rlim_t)next_number();
    ASSERT_EQ_INT(setrlimit(RLIMIT_NOFILE, &none), 0);
    EXPECT_EQ_INT(vb_dl_open(), -EMFILE);
    ASSERT_EQ_INT(setrlimit(RLIMIT_NOFILE, &was), 0);
    EXPECT_EQ_INT(vb_dl_open(), 0);
}
