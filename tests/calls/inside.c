/* inside.c - rows: what libc reads and writes itself: stdio, aio, and a few more. */
#define _GNU_SOURCE
#include "rows.h"

#include <aio.h>
#include <execinfo.h>
#include <linux/aio_abi.h>
#include <stdarg.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>

FILE *_IO_fdopen(int fd, const char *mode);
FILE *_IO_file_attach(FILE *file, int fd);
int _IO_file_close_it(FILE *file);
int _IO_fclose(FILE *file);
int __dprintf_chk(int fd, int flag, const char *fmt, ...);
int __vdprintf_chk(int fd, int flag, const char *fmt, va_list ap);
void __backtrace_symbols_fd(void *const *array, int size, int fd);

static void said(FILE *file)
{
    must(file != NULL && fputs("by stdio", file) >= 0 && fflush(file) == 0, "stdio");
    rows_hear(s, 8);
    fclose(file);
    c = -1;
    rows_over();
}

ROW(fdopen, )
{
    said(SYM(fdopen)(c, "w"));
}
ROW(_IO_fdopen, )
{
    said(SYM(_IO_fdopen)(c, "w"));
}

ROW(_IO_file_attach, )
{
    FILE *file = fopen("/dev/null", "w");

    must(file != NULL && SYM(_IO_file_close_it)(file) == 0, "close_it");
    file = SYM(_IO_file_attach)(file, c);
    said(file);
}

/* The number that the stream had is closed, and the peer sees its end. */
static void closed(void)
{
    char byte;

    c = -1;
    SHOW(read(s, &byte, 1));
    rows_over();
}

ROW(fclose, )
{
    FILE *file = fdopen(c, "w");

    SHOW(SYM(fclose)(file));
    closed();
}

ROW(_IO_fclose, )
{
    FILE *file = fdopen(c, "w");

    SHOW(SYM(_IO_fclose)(file));
    closed();
}

ROW(freopen, )
{
    FILE *file = SYM(freopen)("/dev/null", "w", fdopen(c, "w"));

    closed();
    fclose(file);
}

ROW(freopen64, )
{
    FILE *file = SYM(freopen64)("/dev/null", "w", fdopen(c, "w"));

    closed();
    fclose(file);
}

ROW(dprintf, )
{
    SHOW(SYM(dprintf)(c, "%s %d", "formatted", 1));
    rows_hear(s, 11);
}
ROW(__dprintf_chk, )
{
    SHOW(SYM(__dprintf_chk)(c, 1, "%s %d", "formatted", 2));
    rows_hear(s, 11);
}

static void listed(int checked, const char *fmt, ...)
{
    va_list ap;

    va_start(ap, fmt);
    if (checked)
        SHOW(SYM(__vdprintf_chk)(c, 1, fmt, ap));
    else
        SHOW(SYM(vdprintf)(c, fmt, ap));
    va_end(ap);
    rows_hear(s, 11);
}

ROW(vdprintf, )
{
    listed(0, "%s %d", "formatted", 3);
}
ROW(__vdprintf_chk, )
{
    listed(1, "%s %d", "formatted", 4);
}

/* A line for an address that is nobody's: "[0x10]". */
static void *nowhere[] = {(void *)16};

ROW(backtrace_symbols_fd, )
{
    SYM(backtrace_symbols_fd)(nowhere, 1, c);
    rows_hear(s, 7);
}
ROW(__backtrace_symbols_fd, )
{
    SYM(__backtrace_symbols_fd)(nowhere, 1, c);
    rows_hear(s, 7);
}

ROW(eventfd_read, )
{
    eventfd_t value = 0;

    deliver(c, s, "12345678");
    SHOW(SYM(eventfd_read)(s, &value));
    printf("  [%.8s]\n", (char *)&value);
}

ROW(eventfd_write, )
{
    eventfd_t value;

    memcpy(&value, "87654321", 8);
    SHOW(SYM(eventfd_write)(c, value));
    rows_hear(s, 8);
}

/* ---- aio ---- */

static char text[32];

static void finish(struct aiocb *cb)
{
    const struct aiocb *list[] = {cb};

    while (aio_error(cb) == EINPROGRESS)
        must(aio_suspend(list, 1, NULL) == 0 || errno == EINTR, "aio_suspend");
    printf("  %ld\n", (long)aio_return(cb));
}

#define READING                                                                     \
    {                                                                               \
        .aio_fildes = s, .aio_buf = memset(text, 0, sizeof(text)), .aio_nbytes = 20 \
    }
#define WRITING                                               \
    {                                                         \
        .aio_fildes = c, .aio_buf = "by aio", .aio_nbytes = 6 \
    }
/* aiocb and aiocb64 are the same on 64 bits. */

ROW(aio_read, )
{
    struct aiocb cb = READING;

    deliver(c, s, "aio_read");
    SHOW(SYM(aio_read)(&cb));
    finish(&cb);
    printf("  [%s]\n", text);
}

ROW(aio_read64, )
{
    struct aiocb64 cb = READING;

    deliver(c, s, "aio_read64");
    SHOW(SYM(aio_read64)(&cb));
    finish((struct aiocb *)&cb);
    printf("  [%s]\n", text);
}

ROW(aio_write, )
{
    struct aiocb cb = WRITING;

    SHOW(SYM(aio_write)(&cb));
    finish(&cb);
    rows_hear(s, 6);
}

ROW(aio_write64, )
{
    struct aiocb64 cb = WRITING;

    SHOW(SYM(aio_write64)(&cb));
    finish((struct aiocb *)&cb);
    rows_hear(s, 6);
}

ROW(lio_listio, )
{
    struct aiocb in = READING, out = WRITING, *list[] = {&in, NULL, &out};

    in.aio_lio_opcode = LIO_READ, out.aio_lio_opcode = LIO_WRITE;
    in.aio_nbytes = 6; /* whichever is done first */
    deliver(c, s, "a list");
    SHOW(SYM(lio_listio)(LIO_WAIT, list, 3, NULL));
    printf("  [%.6s]\n", text);
    finish(&in), finish(&out);
    rows_hear(s, 6);
}

ROW(lio_listio64, )
{
    struct aiocb64 out = WRITING, *list[] = {&out};

    out.aio_lio_opcode = LIO_WRITE;
    SHOW(SYM(lio_listio64)(LIO_WAIT, list, 1, NULL));
    finish((struct aiocb *)&out);
    rows_hear(s, 6);
}

/* The kernel's own. */
ROW(syscall, io_submit)
{
    struct iocb cb = {.aio_lio_opcode = IOCB_CMD_PWRITE,
                      .aio_fildes = (uint32_t)c,
                      .aio_buf = (uintptr_t) "submitted",
                      .aio_nbytes = 9};
    struct iocb *list[] = {&cb};
    aio_context_t context = 0;

    must(syscall(SYS_io_setup, 1, &context) == 0, "io_setup");
    SHOW(SYM(syscall)(SYS_io_submit, context, 1, list));
    rows_hear(s, 9);
    syscall(SYS_io_destroy, context);
}

ROW(syscall, write)
{
    SHOW(SYM(syscall)(SYS_write, c, "by number", 9));
    rows_hear(s, 9);
}
