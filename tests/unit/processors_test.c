/*
 * processors_test.c - does the machine have one processor? As the kernel's list says, whatever the
 * process may use.
 */
#include "tests/shim/shim.h"

#include "ipoib_fallback/processors.h"
#include "ipoib_fallback/stream.h"

#include <fcntl.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/wait.h>
#include <unistd.h>

bool fb_filtered(void)
{
    return false;
}

static const char list[] = "/sys/devices/system/cpu/online";

/* What a child says that is kept on one, with the machine's own list or, if path is not NULL, that
 * file as the list: 0 several, 1 one; 2: it may not mount it. */
static int found_in(const char *path)
{
    cpu_set_t one;
    int status = 0;
    pid_t pid = fork();

    if (pid == 0) {
        if (path && (unshare(CLONE_NEWNS) || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) ||
                     mount(path, list, NULL, MS_BIND, NULL)))
            _exit(2);
        CPU_ZERO(&one);
        CPU_SET((unsigned)sched_getcpu(), &one);
        if (sched_setaffinity(0, sizeof(one), &one))
            _exit(3);
        processors_look();
        _exit(atomic_load(&fb_one_processor));
    }
    ASSERT(pid > 0 && waitpid(pid, &status, 0) == pid);
    return WEXITSTATUS(status);
}

TEST_CASE(processors, as_many_as_the_machine_has)
{
    EXPECT_EQ_INT(found_in(NULL), sysconf(_SC_NPROCESSORS_ONLN) == 1);
}

static int found(const char *text)
{
    char path[] = "/tmp/processors_test.XXXXXX";
    int fd = mkstemp(path), one;

    ASSERT(fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text));
    close(fd);
    one = found_in(path);
    unlink(path);
    return one;
}

TEST_CASE(processors, as_the_list_says)
{
    static const struct {
        const char *text;
        int one;
    } of[] = {{"0\n", 1}, {"7\n", 1}, {"0-1\n", 0}, {"0,2\n", 0}, {"0-3,8-11\n", 0}, {"", 0}};

    if (found("0\n") == 2)
        SKIP("needs a mount namespace");
    for (unsigned i = 0; i < sizeof(of) / sizeof(*of); i++)
        EXPECT_EQ_INT(found(of[i].text), of[i].one);
}
