/*
 * report.h - sums over the connections of all processes below one `railsock run --report`, from the
 * files that they leave in a folder of its own (RAILSOCK_KEEP).
 */
#ifndef TOOLS_REPORT_H
#define TOOLS_REPORT_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/resource.h>

struct report {
    uint64_t processes, connections, boarded, bytes, rail_bytes, switches;
    uint64_t by_reason[64]; /* connections that never boarded, by their last reason */
    /* Connections, open at their process's end, that had boarded and went on over TCP when
     * the rail failed. */
    uint64_t failed;
    const char *lacking; /* why processes may be missing in the sums; NULL: none */
    uint64_t others;     /* processes of another version of railsock: they are missing */
};

#define REPORT_FOLDER_SIZE 64 /* as RAILSOCK_KEEP may have */

/* Makes the folder, its path in folder, and holds a lock on it until report_end. 0 or -errno. */
int report_begin(char folder[REPORT_FOLDER_SIZE]) __attribute__((warn_unused_result));
/* Notes whether there is room for what a process shows: now and then, as it may be
 * gone in between. */
void report_look(struct report *r);
/* Adds and removes the files of processes that have ended, or all of them. */
void report_collect(const char *folder, bool all, struct report *r);
/* Removes the folder, which report_collect has emptied. */
void report_end(const char *folder);
/* Removes the folders of this user's, for root everybody's, that a `railsock run` has left
 * which was killed: nobody has locked them. Programs may still run that put files into them;
 * they find none then. */
void report_sweep(void);

/* Whether some connection stayed on TCP for a reason that its user may want to hear. */
bool report_off(const struct report *r);
/* In words; program is its name. */
void report_print(FILE *f, const char *program, const struct report *r);
/* One JSON object with the sums, the time in nanoseconds and what wait4 said of the program. */
void report_json(FILE *f, const struct report *r, int64_t wall_ns, const struct rusage *usage);

#endif
