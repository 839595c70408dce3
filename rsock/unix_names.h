/*
 * unix_names.h - abstract unix names as a registry: a process that can be asked binds a name, the
 * kernel shows it to everybody of the network namespace and removes it when the process dies.
 * No file, no table, nothing stale.
 */
#ifndef RSK_UNIX_NAMES_H
#define RSK_UNIX_NAMES_H

/* The kernel's list, of the calling thread's network namespace. /proc/net is the main thread's, and
 * is not there where /proc is mounted with subset=pid (ProcSubset= of a systemd unit). */
#define RSK_UNIX_LIST "/proc/thread-self/net/unix"

/* Calls fn for each bound name that begins with prefix (without the leading NUL): line is its whole
 * line of that list, rest what follows the prefix. Anybody may bind any name: what is found
 * is a hint. Blocks for a read of /proc; progress thread. */
void rsk_unix_names(const char *prefix, void (*fn)(void *arg, const char *line, const char *rest),
                    void *arg);

#endif
