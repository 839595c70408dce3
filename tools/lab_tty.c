/*
 * lab_tty.c - our terminal, passed on to the shell of a host: input only, output needs
 * no care. Works with a pipe for stdin too, so that a shell can be scripted.
 */
#include "lab_tty.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

bool lab_tty_raw(struct lab_tty *tty)
{
    struct termios raw;

    if (tty->is_raw || tcgetattr(STDIN_FILENO, &tty->before) < 0)
        return tty->is_raw;
    raw = tty->before;
    cfmakeraw(&raw);
    tty->is_raw = tcsetattr(STDIN_FILENO, TCSADRAIN, &raw) == 0;
    return tty->is_raw;
}

void lab_tty_restore(struct lab_tty *tty)
{
    if (tty->is_raw)
        tcsetattr(STDIN_FILENO, TCSADRAIN, &tty->before);
    tty->is_raw = false;
}

void lab_tty_poll(const struct lab_tty *tty, bool active, int fd, struct pollfd *pfd)
{
    pfd[0] = (struct pollfd){.fd = -1, .events = POLLIN};
    pfd[1] = (struct pollfd){.fd = -1, .events = POLLOUT};
    if (!active || fd < 0)
        return;
    if (!tty->ended && tty->len == 0)
        pfd[0].fd = STDIN_FILENO;
    if (tty->len > 0)
        pfd[1].fd = fd;
}

void lab_tty_ready(struct lab_tty *tty, int fd, const struct pollfd *pfd, int64_t now_ms)
{
    if (pfd[0].revents) {
        ssize_t r = read(STDIN_FILENO, tty->data, sizeof tty->data);

        if (r > 0) {
            tty->len = (size_t)r;
        } else if (r == 0 || (errno != EINTR && errno != EAGAIN)) {
            tty->ended = true;
        }
    }
    if (tty->ended && tty->len == 0 && now_ms >= tty->again_ms) {
        tty->data[0] = 4;
        tty->len = 1;
        tty->again_ms = now_ms + 500;
    }
    if (tty->len > 0 && fd >= 0) {
        ssize_t r = send(fd, tty->data, tty->len, MSG_DONTWAIT | MSG_NOSIGNAL);

        if (r > 0) {
            tty->len -= (size_t)r;
            memmove(tty->data, tty->data + r, tty->len);
        } else if (r < 0 && errno != EAGAIN && errno != EINTR) {
            tty->len = 0;
        }
    }
}
