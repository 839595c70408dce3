/*
 * memory.c - a program whose address space is full: what it has open goes on, new connections
 * work, and they board again when there is room. First before anything has boarded, then with
 * connections on rails.
 */
#include "say.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>

enum { MANY = 60 };

/* From now on the process gets no more memory than what its heap has left. */
static void no_more(bool more)
{
    struct rlimit limit = {RLIM_INFINITY, RLIM_INFINITY};
    bool room = true;

    may_board = more;
    if (more)
        must(setrlimit(RLIMIT_AS, &limit) == 0, "RLIMIT_AS");
    /* Another thread may give some back in between: then once more. */
    for (int i = 0; !more && room && i < 5; i++) {
        char text[64] = "";
        int fd = open("/proc/self/statm", O_RDONLY);
        void *some;

        must(fd >= 0 && read(fd, text, sizeof(text) - 1) > 0, "statm");
        close(fd);
        limit.rlim_cur = strtoul(text, NULL, 10) * 4096;
        must(setrlimit(RLIMIT_AS, &limit) == 0, "RLIMIT_AS");
        some = mmap(NULL, 65536, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        room = some != MAP_FAILED && munmap(some, 65536) == 0;
    }
    must(more || !room, "there is room");
}

static void end(int p[2])
{
    char c;

    close(p[0]);
    printf("end: %zd\n", read(p[1], &c, 1));
    close(p[1]);
}

int main(void)
{
    static int many[MANY][2];
    int p[2], q[2];

    static char said[4096];

    setvbuf(stdout, said, _IOLBF, sizeof(said));
    for (int round = 0; round < 2; round++) {
        printf("-- round %d\n", round);
        if (round)
            tcp_pair(q);
        no_more(false);
        tcp_pair(p);
        talk(p, "a new one       ");
        if (round) {
            talk(q, "an old one      ");
            end(q);
        }
        for (int i = 0; i < MANY; i++) {
            struct sockaddr_in at;
            int l = listener(&at);

            pair_at(l, &at, many[i]);
            close(l);
            for (int j = 0; j < 20; j++) {
                pass(many[i], 0);
                pass(many[i], 1);
            }
        }
        printf("%d more\n", MANY);
        no_more(true);
        talk(p, "that one, with room again");
        end(p);
        for (int i = 0; i < MANY; i++)
            end(many[i]);
        tcp_pair(p);
        talk(p, "one that may board");
        end(p);
    }
    return 0;
}
