/*
 * lab_image.c - finds the lab's scripts and has them make or refresh the image.
 *
 * What an image is made of is lab-image's alone.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "lab_image.h"

#include "tools/script.h"

#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

/* One line without its newline, or NULL. To be freed. */
static char *read_line(FILE *f)
{
    char *line = NULL;
    size_t size = 0;
    ssize_t len = getline(&line, &size, f);

    if (len <= 1) {
        free(line);
        return NULL;
    }
    line[len - 1] = 0;
    return line;
}

int lab_image_get(struct lab_image *image)
{
    char *script = script_find("lab-image");
    int out[2] = {-1, -1};
    FILE *f = NULL;
    pid_t pid;
    int status = 0;
    int r = 0;

    *image = (struct lab_image){0};
    if (!script) {
        script_missing("lab", "lab-image");
        return -ENOENT;
    }
    if (pipe2(out, O_CLOEXEC) < 0) {
        r = -errno;
        goto out;
    }
    pid = fork();
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGTERM);
        dup2(out[1], STDOUT_FILENO);
        execl(script, script, (char *)NULL);
        _exit(127);
    }
    if (pid < 0) {
        r = -errno;
        goto out;
    }
    close(out[1]);
    out[1] = -1;
    f = fdopen(out[0], "r");
    if (f) {
        out[0] = -1;
        image->kernel = read_line(f);
        image->initrd = read_line(f);
        image->modules = read_line(f);
    }
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
        ;
    if (status != 0 || !image->kernel || !image->initrd || !image->modules) {
        fprintf(stderr, "railsock lab: no image (%s failed)\n", script);
        r = -EIO;
    }
out:
    if (f)
        fclose(f);
    if (out[0] >= 0)
        close(out[0]);
    if (out[1] >= 0)
        close(out[1]);
    free(script);
    if (r < 0)
        lab_image_free(image);
    return r;
}

void lab_image_free(struct lab_image *image)
{
    free(image->kernel);
    free(image->initrd);
    free(image->modules);
    *image = (struct lab_image){0};
}

bool lab_image_have_qemu(void)
{
    const char *path = getenv("PATH");
    char *copy = strdup(path ? path : "");
    char *save = NULL;
    bool found = false;

    for (char *dir = copy ? strtok_r(copy, ":", &save) : NULL; dir && !found;
         dir = strtok_r(NULL, ":", &save)) {
        char *file;

        if (asprintf(&file, "%s/qemu-system-x86_64", dir) < 0)
            break;
        found = access(file, X_OK) == 0;
        free(file);
    }
    free(copy);
    if (!found)
        fprintf(stderr, "railsock lab: qemu-system-x86_64 is missing; railsock-lab(1) names the "
                        "packages, tools/deps lab installs them\n");
    return found;
}
