/*
 * chrooted.c - servers that have changed their root directory to one without /proc, of the same
 * user as their client and of another.
 */
#include "warm.h"

#include <sys/stat.h>
#include <sys/wait.h>

enum { USER = 54321 };

static char root[] = "/tmp/chrooted.XXXXXX";

static void serve(int l, bool same)
{
    int fd;
    char b;

    if (chroot(root) != 0 && getuid() == 0) /* who is not root tests nothing */
        give_up("chroot");
    must(same || getuid() || setresuid(USER, USER, USER) == 0, "setresuid");
    fd = accept(l, NULL, NULL);
    warms(same ? "same user" : "another user", fd);
    printf("the end is %zd\n", read(fd, &b, 1));
    exit(0);
}

int main(void)
{
    struct sockaddr_in at;

    setvbuf(stdout, NULL, _IONBF, 0);
    must(mkdtemp(root) != NULL && chmod(root, 0755) == 0, "mkdtemp");
    for (int same = 0; same < 2; same++) {
        int l = listener(&at), fd, status;
        pid_t pid = fork();

        if (pid == 0)
            serve(l, same);
        fd = socket(AF_INET, SOCK_STREAM, 0);
        must(connect(fd, (struct sockaddr *)&at, sizeof at) == 0, "connect");
        asks(fd, 0, pid);
        close(fd);
        close(l);
        must(waitpid(pid, &status, 0) == pid, "waitpid");
        printf("status %d\n", status);
    }
    rmdir(root);
    return 0;
}
