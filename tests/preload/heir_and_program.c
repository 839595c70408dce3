/*
 * heir_and_program.c - a connection of three: a server forks a program for it, which keeps it, and
 * a child that serves it, and closes its own number. The program is no child any more whose end
 * would show; the connection stays on TCP all the same, and its bytes are the child's.
 */
#include "warm.h"

#include <signal.h>
#include <sys/wait.h>

/* When this returns it is executed. */
static pid_t program_with(int fd)
{
    int gone[2];
    char byte;
    pid_t pid;

    must(pipe2(gone, O_CLOEXEC) == 0 && fcntl(fd, F_SETFD, 0) == 0, "pipe2");
    pid = fork();
    must(pid >= 0, "fork");
    if (pid == 0) {
        execlp("sleep", "sleep", "200", (char *)NULL);
        _exit(127);
    }
    close(gone[1]);
    must(read(gone[0], &byte, 1) == 0, "read");
    close(gone[0]);
    return pid;
}

int main(void)
{
    struct sockaddr_in at;
    int l, fd, other[2], go[2], status;
    pid_t client, heir, program;
    char byte;

    alarm(200);
    l = listener(&at);
    must(pipe(go) == 0, "pipe");
    client = fork();
    if (client == 0) {
        fd = socket(AF_INET, SOCK_STREAM, 0);
        must(connect(fd, (void *)&at, sizeof at) == 0, "connect");
        asks(fd, 0, 0);
        fflush(stdout);
        _exit(0);
    }
    fd = accept(l, NULL, NULL);
    must(fd >= 0, "accept");
    program = program_with(fd);
    heir = fork();
    if (heir == 0) {
        must(read(go[0], &byte, 1) == 1, "read");
        stays("beside a program that has it", fd);
        echo(fd, 1);
        fflush(stdout);
        _exit(0);
    }
    /* The server's library begins to look after its children with the first rail of its own. */
    tcp_pair(other);
    on_rail(other);
    close(fd);
    must(write(go[1], "", 1) == 1, "write");
    must(waitpid(heir, &status, 0) == heir && status == 0, "the child");
    must(waitpid(client, &status, 0) == client && status == 0, "the client");
    kill(program, SIGKILL);
    waitpid(program, NULL, 0);
    close(other[0]);
    close(other[1]);
    printf("over\n");
    return 0;
}
