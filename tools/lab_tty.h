/*
 * lab_tty.h - our terminal, passed on to the shell of a host.
 */
#ifndef RAILSOCK_LAB_TTY_H
#define RAILSOCK_LAB_TTY_H

#include <poll.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <termios.h>

#define LAB_TTY_FDS 2 /* how many poll entries it uses */

/* Zero-initialised before use. */
struct lab_tty {
    bool is_raw;
    bool ended;       /* no more input */
    int64_t again_ms; /* once ended: when to say so again */
    struct termios before;
    char data[4096]; /* read, not yet taken by the host */
    size_t len;
};

/* Puts stdin into raw mode if it is a terminal; returns whether it is now. */
bool lab_tty_raw(struct lab_tty *tty);

/* Undoes that. May be repeated. */
void lab_tty_restore(struct lab_tty *tty);

/* Fills LAB_TTY_FDS entries; unused ones when not active. fd is the host's. */
void lab_tty_poll(const struct lab_tty *tty, bool active, int fd, struct pollfd *pfd);

/*
 * Passes on what can be after poll(); now_ms is lab_now_ms(). The end of our input becomes
 * a ^D every half second, since each ends only one of the programs that read the terminal.
 */
void lab_tty_ready(struct lab_tty *tty, int fd, const struct pollfd *pfd, int64_t now_ms);

#endif
