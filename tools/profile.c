/*
 * profile.c - see profile.h.
 */
#include "tools/profile.h"

#include <stdlib.h>
#include <string.h>

static const struct profile {
    const char *name, *what;
    const char *set[6][2];
} profiles[] = {
    {"latency",
     "boards at the first call, spins long before it sleeps, keeps idle rails",
     {{"RAILSOCK_BOARD", "eager"}, {"RAILSOCK_SPIN", "200"}, {"RAILSOCK_IDLE", "0"}}},
    {"throughput",
     "large rings, and patience with a receiver that pauses",
     {{"RAILSOCK_RING", "1m"}, {"RAILSOCK_STALL", "500"}}},
    {"frugal",
     "never spins, small rings, few rails, and only for connections that move much",
     {{"RAILSOCK_BOARD", "after=1m"},
      {"RAILSOCK_SPIN", "0"},
      {"RAILSOCK_RING", "64k"},
      {"RAILSOCK_RAILS", "64"},
      {"RAILSOCK_MEMORY", "16m"},
      {"RAILSOCK_IDLE", "5"}}},
};

enum { N = sizeof(profiles) / sizeof(profiles[0]), SETS = 6, MOST = 16 };

static const struct profile *wanted[MOST];
static size_t nwanted;

static const struct profile *find(const char *name, size_t len)
{
    for (size_t i = 0; i < N; i++)
        if (strlen(profiles[i].name) == len && strncmp(profiles[i].name, name, len) == 0)
            return &profiles[i];
    return NULL;
}

bool profile_add(const char *list)
{
    for (const char *p = list;; p++) {
        size_t len = strcspn(p, ",");

        if (nwanted == MOST || !(wanted[nwanted] = find(p, len))) {
            fprintf(
                stderr,
                "railsock run: --profile %s: expected latency, throughput, frugal, or some of them "
                "with commas between\n",
                list);
            return false;
        }
        nwanted++;
        p += len;
        if (!*p)
            return true;
    }
}

/* Whether the user has said something about it. An empty variable is an unset one to the library
 * too. --rail says when to board, and an explicit RAILSOCK_BOARD would stand above it. */
static bool users_own(const char *name)
{
    const char *value = getenv(name);
    const char *mode = getenv("RAILSOCK_MODE");

    return (value && *value) ||
           (strcmp(name, "RAILSOCK_BOARD") == 0 && mode && strcmp(mode, "rail") == 0);
}

bool profile_apply(void)
{
    /* From the last to the first, and never over what is set: so a later one wins, and the
     * user over all. */
    for (size_t i = nwanted; i-- > 0;)
        for (size_t k = 0; k < SETS && wanted[i]->set[k][0]; k++) {
            const char *name = wanted[i]->set[k][0];

            if (!users_own(name) && setenv(name, wanted[i]->set[k][1], 1) < 0) {
                perror("railsock run");
                return false;
            }
        }
    return true;
}

void profile_print(FILE *f)
{
    for (size_t i = 0; i < N; i++) {
        fprintf(f, "  %-11s%s:\n            ", profiles[i].name, profiles[i].what);
        for (size_t k = 0; k < SETS && profiles[i].set[k][0]; k++)
            fprintf(f, "%s %s=%s", k == 3 ? "\n            " : "",
                    profiles[i].set[k][0] + strlen("RAILSOCK_"), profiles[i].set[k][1]);
        fputc('\n', f);
    }
}
