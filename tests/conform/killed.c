/*
 * killed.c - the other end's process is killed, or exits, and has read everything or not, with
 * either direction, both or none on a rail: tcp(7), RFC 9293 section 3.10.4 (a close with
 * unread bytes resets).
 */
#include "tests/conform/kit.h"

/* What may be on a rail: of what this end sends, of what comes. */
struct ways {
    const char *name;
    bool there, back;
    void (*boards)(int fd, bool here);
};

static void there(int fd, bool here)
{
    board_half(fd, here);
}

static void back(int fd, bool here)
{
    board_half(fd, !here);
}

static const struct ways ways[] = {
    {"both", true, true, board_one},
    {"there", true, false, there},
    {"back", false, true, back},
    {"neither", false, false, NULL},
};

#define EACH_WAY(id) EACH(id, struct ways, ways, COUNT(ways))

static struct far far;
static const struct ways *way;
static bool unread;

static void look(const char *what)
{
    struct pollfd p = {far.fd, POLLIN | POLLOUT | POLLRDHUP, 0};

    poll(&p, 1, 0);
    say_events(what, p.revents);
}

static void reads(void)
{
    char buf[100] = "";
    ssize_t n;

    do {
        errno = CLEAN;
        n = recv(far.fd, buf, sizeof(buf), MSG_WAITALL);
        show("recv", n, errno);
        if (n > 0)
            say_bytes(" ", buf, n);
    } while (n > 0);
}

static void reads_again(void)
{
    SHOW(recv(far.fd, (char[1]){0}, 1, 0));
}

static void sends(void)
{
    SHOW(send(far.fd, "x", 1, MSG_NOSIGNAL));
}

/* The other end, which then ends: says something if its direction may be on a rail, has what was
 * sent to it, reads it or not. */
static void exits(struct far *f)
{
    char buf[6];

    if (way->back)
        must(send(f->fd, "last words", 10, 0) == 10, "send");
    far_wait(f);
    arrived(f->fd, 6);
    if (!unread)
        must(recv(f->fd, buf, 6, MSG_WAITALL) == 6, "recv");
}

static void dies(struct far *f)
{
    exits(f);
    far_step(f);
    for (;;)
        pause();
}

/* Here the other end lives no more, and what the kernel knows of it has come. */
static void gone(const struct ways *w, bool killed, bool with_unread)
{
    way = w;
    unread = with_unread;
    far_begin_as(&far, killed ? dies : exits, w->boards);
    SHOW(send(far.fd, "unread", 6, 0));
    if (w->back)
        arrived(far.fd, 10);
    far_step(&far);
    if (killed) {
        far_wait(&far);
        SHOW(kill(far.pid, SIGKILL));
    }
    far_end(&far);
}

EACH_WAY(unread_then_read)
{
    gone(f, true, true);
    reads();
    sends();
    reads_again();
    say_error(far.fd);
    look("poll");
}

EACH_WAY(unread_then_sent)
{
    gone(f, true, true);
    until(far.fd, POLLRDHUP | POLLHUP | POLLERR);
    sends();
    sends();
    say_error(far.fd);
    reads();
    look("poll");
}

EACH_WAY(unread_then_asked)
{
    gone(f, true, true);
    until(far.fd, POLLRDHUP | POLLHUP | POLLERR);
    look("poll");
    say_error(far.fd);
    say_error(far.fd);
    look("poll");
    sends();
    reads();
    SHOW(shutdown(far.fd, SHUT_WR));
}

EACH_WAY(unread_and_exits)
{
    gone(f, false, true);
    reads();
    sends();
    say_error(far.fd);
}

EACH_WAY(all_read_then_read)
{
    gone(f, true, false);
    reads();
    look("poll");
    say_error(far.fd);
    reads_again();
}

EACH_WAY(all_read_then_sent)
{
    gone(f, true, false);
    until(far.fd, POLLRDHUP);
    look("poll");
    sends();
    until(far.fd, POLLHUP);
    sends();
    reads();
}

EACH_WAY(all_read_and_exits)
{
    gone(f, false, false);
    reads();
    look("poll");
    say_error(far.fd);
}

/* Killed on the way back from a rail: what was in its ring comes again by TCP. */
static void half_closed(const struct ways *w, bool with_unread)
{
    way = w;
    unread = with_unread;
    far_begin_as(&far, dies, w->boards);
    if (w->back)
        arrived(far.fd, 10);
    SHOW(send(far.fd, "unread", 6, 0));
    SHOW(shutdown(far.fd, SHUT_WR));
    far_step(&far);
    far_wait(&far);
    acked(far.fd);
    SHOW(kill(far.pid, SIGKILL));
    far_end(&far);
    reads();
    sends();
    say_error(far.fd);
}

EACH_WAY(unread_after_the_end)
{
    half_closed(f, true);
}

EACH_WAY(all_read_after_the_end)
{
    half_closed(f, false);
}

/* No death: it says that it will send nothing more, and has not read yet. */
static void half_closes(struct far *f)
{
    char buf[6];

    far_wait(f);
    arrived(f->fd, 6);
    must(shutdown(f->fd, SHUT_WR) == 0, "shutdown");
    far_step(f);
    far_wait(f);
    must(recv(f->fd, buf, 6, MSG_WAITALL) == 6 && memcmp(buf, "unread", 6) == 0, "recv");
    must(recv(f->fd, buf, 6, MSG_WAITALL) == 6 && memcmp(buf, "second", 6) == 0, "recv");
    must(recv(f->fd, buf, 6, MSG_WAITALL) == 0, "recv");
}

EACH_WAY(half_closed_with_unread)
{
    way = f;
    far_begin_as(&far, half_closes, f->boards);
    SHOW(send(far.fd, "unread", 6, 0));
    far_step(&far);
    far_wait(&far);
    until(far.fd, POLLRDHUP);
    look("poll");
    reads();
    say_error(far.fd);
    SHOW(send(far.fd, "second", 6, 0));
    far_step(&far);
    SHOW(shutdown(far.fd, SHUT_WR));
    far_end(&far);
}
