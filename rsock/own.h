/*
 * own.h - what a forked child must give up: the library's descriptors and shared
 * mappings. Descriptors are kept out of the application's way (512 and up, close on
 * exec) and noted here; mappings likewise. A child walks the notes without a lock.
 */
#ifndef RSK_OWN_H
#define RSK_OWN_H

#include <stdbool.h>
#include <stddef.h>

/* Hides fd (sys_hide_fd) and notes it. Takes a negative fd as an error and hands it back.
 * Returns the new number or -errno; on error fd is closed. Any thread. */
int rsk_own_fd(int fd);
/* Notes a number that is hidden already and that a forked child shall keep as its own. At most 16 in a
 * process's life; 0 or -errno. */
int rsk_own_keep(int fd);
/* Is this number one of ours? Two loads. */
bool rsk_own_has(int fd);
/* The lowest noted number that is not below fd, or -1. */
int rsk_own_next(int fd);
/* Forgets and closes; a negative fd is ignored. Any thread. */
void rsk_own_close(int fd);

/* Embedded in what owns the mapping. */
struct rsk_own_map {
    void *addr;
    size_t len;
    struct rsk_own_map *_Atomic next;
    struct rsk_own_map *prev;
};

/* Notes a mapping; undone by rsk_own_unmap, which also unmaps. Any thread. */
void rsk_own_map(struct rsk_own_map *, void *addr, size_t len);
void rsk_own_unmap(struct rsk_own_map *);

/* The next child of this thread has the same descriptor table, not a copy: it closes nothing. */
void rsk_own_files_are_shared(bool);
/* In a forked child: closes and unmaps everything noted. Takes no lock, calls no malloc. */
void rsk_own_after_fork_child(void);

#endif
