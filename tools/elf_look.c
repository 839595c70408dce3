/*
 * elf_look.c - reads the head of a program's file. Only hints come from here, so whatever
 * is not understood counts as fine.
 */
#include "tools/elf_look.h"

#include "config/script.h"

#include <ctype.h>
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#define HEAD_SIZE 4096
#define SCRIPTS   5 /* as deep as the kernel follows #! lines */

#if defined(__x86_64__)
#define OWN_MACHINE EM_X86_64
#else
#define OWN_MACHINE EM_AARCH64
#endif

/* See elf_look.h. */
bool elf_search(const char *command, char path[PATH_MAX])
{
    const char *dirs = getenv("PATH");
    int err = ENOENT;

    if (strchr(command, '/'))
        return snprintf(path, PATH_MAX, "%s", command) < PATH_MAX;
    for (const char *p = dirs ? dirs : "/bin:/usr/bin", *end; p; p = *end ? end + 1 : NULL) {
        struct stat st;
        int n;

        end = strchrnul(p, ':');
        n = snprintf(path, PATH_MAX, "%.*s%s%s", (int)(end - p), p, end > p ? "/" : "", command);
        if (n >= PATH_MAX || stat(path, &st) < 0 || !S_ISREG(st.st_mode))
            continue;
        if (access(path, X_OK) == 0)
            return true;
        err = EACCES;
    }
    errno = err;
    return false;
}

/* The interpreter of a `#!` line, in place. NULL: head is no such line. */
static char *interpreter(char *head)
{
    char *p = head + 2, *end;

    if (head[0] != '#' || head[1] != '!')
        return NULL;
    p += strspn(p, " \t");
    end = p + strcspn(p, " \t\n");
    *end = '\0';
    return *p ? p : NULL;
}

/* An option of env(1): how many of the following words are its own. -1: one that is not understood,
 * or ends what can be. */
static int env_option(const char *word)
{
    static const char *const alone[] = {
        "-", "-i", "-v", "-S", "-vS", "-iS", "--", "--debug", "--ignore-environment"};
    static const char *const more[] = {"-u", "-C", "--unset", "--chdir"};

    for (size_t i = 0; i < sizeof(alone) / sizeof(alone[0]); i++)
        if (strcmp(word, alone[i]) == 0)
            return 0;
    for (size_t i = 0; i < sizeof(more) / sizeof(more[0]); i++)
        if (strcmp(word, more[i]) == 0)
            return 1;
    return strncmp(word, "--unset=", 8) == 0 || strncmp(word, "-u", 2) == 0 ? 0 : -1;
}

/* What env executes of a `#!` line that names it: the first word that is no option of its own and
 * sets no variable. False: it does not name env, or says it in a way that is not understood here.
 * head: n bytes, and a NUL. */
static bool env_names(const char *head, size_t n, char name[CFG_SCRIPT_LINE])
{
    char line[CFG_SCRIPT_LINE], *rest = line, *word;

    if (cfg_script_of(head, n, name) == CFG_SCRIPT_NONE)
        return false;
    snprintf(line, sizeof(line), "%.*s", (int)strcspn(head, "\n"), head);
    rest += 2 + strspn(rest + 2, " \t");
    strsep(&rest, " \t"); /* env */
    while ((word = strsep(&rest, " \t"))) {
        int skip;

        if (strncmp(word, "-S", 2) == 0 && word[2]) /* -Sprogram */
            word += 2;
        else if (strncmp(word, "--split-string=", 15) == 0)
            word += 15;
        if (strpbrk(word, "\\\"'"))
            return false;
        /* Another PATH is another program. */
        if (strncmp(word, "PATH=", 5) == 0)
            return false;
        if (!*word || (*word != '-' && strchr(word, '=')))
            continue;
        if (*word != '-') {
            strcpy(name, word);
            return !strchr(word, '$');
        }
        for (skip = env_option(word); skip > 0; skip--)
            do
                word = strsep(&rest, " \t");
            while (word && !*word);
        if (skip < 0)
            return false;
    }
    return false;
}

/* Go's linker marks its programs with a note of this name, also when they are stripped. */
static bool has_go_note(int fd, const Elf64_Phdr *ph)
{
    char notes[1024];
    ssize_t n = pread(fd, notes, sizeof(notes), (off_t)ph->p_offset);

    if (ph->p_filesz < sizeof(notes) && n > (ssize_t)ph->p_filesz)
        n = (ssize_t)ph->p_filesz;
    for (size_t at = 0; n > 0 && at + sizeof(Elf64_Nhdr) + 4 <= (size_t)n;) {
        Elf64_Nhdr nh;

        memcpy(&nh, notes + at, sizeof(nh));
        if (nh.n_namesz == 4 && memcmp(notes + at + sizeof(nh), "Go\0", 4) == 0)
            return true;
        if (nh.n_namesz > sizeof(notes) || nh.n_descsz > sizeof(notes))
            return false;
        at += sizeof(nh) + ((nh.n_namesz + 3u) & ~3u) + ((nh.n_descsz + 3u) & ~3u);
    }
    return false;
}

/* Is the dynamic linker, which the segment names, musl's? */
static bool is_musl(int fd, const Elf64_Phdr *ph)
{
    char name[PATH_MAX];
    size_t size = ph->p_filesz < sizeof(name) ? (size_t)ph->p_filesz : sizeof(name) - 1;
    ssize_t n = pread(fd, name, size, (off_t)ph->p_offset);

    name[n > 0 ? n : 0] = '\0';
    return strstr(name, "/ld-musl-") != NULL;
}

/* head: n bytes of it. */
static enum elf_why look_elf(int fd, const char *head, size_t n)
{
    const Elf64_Ehdr *eh = (const void *)head;
    bool interp = false, go = false, musl = false;

    if (n < sizeof(Elf32_Ehdr) || memcmp(eh->e_ident, ELFMAG, SELFMAG) != 0)
        return ELF_UNKNOWN;
    if (eh->e_ident[EI_CLASS] == ELFCLASS32)
        return ELF_NARROW;
    if (n < sizeof(*eh) || eh->e_ident[EI_CLASS] != ELFCLASS64)
        return ELF_UNKNOWN;
    if (eh->e_machine != OWN_MACHINE)
        return ELF_FOREIGN;
    for (unsigned i = 0; i < eh->e_phnum && eh->e_phentsize == sizeof(Elf64_Phdr); i++) {
        Elf64_Phdr ph;

        if (pread(fd, &ph, sizeof(ph), (off_t)(eh->e_phoff + i * sizeof(ph))) != sizeof(ph))
            return ELF_UNKNOWN;
        interp |= ph.p_type == PT_INTERP;
        musl |= ph.p_type == PT_INTERP && is_musl(fd, &ph);
        go |= ph.p_type == PT_NOTE && has_go_note(fd, &ph);
    }
    return !interp ? ELF_STATIC : musl ? ELF_MUSL : go ? ELF_GO : ELF_FINE;
}

/* The dynamic linker of a program with more rights than its caller takes LD_PRELOAD only from
 * system directories. Scripts are never set-user-ID. */
static enum elf_why look_rights(int fd)
{
    struct stat st;

    if (fstat(fd, &st) < 0)
        return ELF_UNKNOWN;
    if (((st.st_mode & S_ISUID) && st.st_uid != getuid()) ||
        ((st.st_mode & S_ISGID) && (st.st_mode & S_IXGRP) && st.st_gid != getgid()))
        return ELF_SET_ID;
    if (getuid() != 0 && fgetxattr(fd, "security.capability", NULL, 0) > 0)
        return ELF_CAPABLE;
    return ELF_FINE;
}

bool elf_is_text(const char *path)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    char head[CFG_SCRIPT_LINE];
    ssize_t n = fd < 0 ? -1 : read(fd, head, sizeof(head));

    if (fd >= 0)
        close(fd);
    return n >= 0 && !memchr(head, '\0', (size_t)n) && (n < 2 || memcmp(head, "#!", 2) != 0) &&
           (n < SELFMAG || memcmp(head, ELFMAG, SELFMAG) != 0);
}

enum elf_why elf_check(const char *path, char runs[PATH_MAX])
{
    _Alignas(Elf64_Ehdr) char head[HEAD_SIZE + 1];
    enum elf_why why = ELF_UNKNOWN;

    snprintf(runs, PATH_MAX, "%s", path);
    for (int depth = 0; depth < SCRIPTS; depth++) {
        int fd = open(runs, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
        ssize_t n = fd < 0 ? -1 : read(fd, head, HEAD_SIZE);
        char name[CFG_SCRIPT_LINE], found[PATH_MAX];
        const char *next;
        bool by_env;

        head[n > 0 ? n : 0] = '\0';
        by_env = n > 0 && env_names(head, (size_t)n, name);
        if (by_env)
            next = elf_search(name, found) ? found : name;
        else
            next = n > 2 ? interpreter(head) : NULL;
        if (n > 0 && !next) {
            why = look_elf(fd, head, (size_t)n);
            if (why == ELF_FINE)
                why = look_rights(fd);
        }
        if (fd >= 0)
            close(fd);
        if (!next)
            break;
        snprintf(runs, PATH_MAX, "%s", next);
    }
    return why;
}

bool elf_is_library(const char *path)
{
    Elf64_Ehdr eh;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n;

    if (fd < 0)
        return false;
    n = read(fd, &eh, sizeof(eh));
    if (n >= 0)
        errno = 0;
    close(fd);
    return n == (ssize_t)sizeof(eh) && memcmp(eh.e_ident, ELFMAG, SELFMAG) == 0 &&
           eh.e_ident[EI_CLASS] == ELFCLASS64 && eh.e_ident[EI_DATA] == ELFDATA2LSB &&
           eh.e_machine == OWN_MACHINE && eh.e_type == ET_DYN;
}

static bool header_at(int fd, const Elf64_Ehdr *eh, unsigned i, Elf64_Phdr *ph)
{
    return i < eh->e_phnum &&
           pread(fd, ph, sizeof(*ph), (off_t)(eh->e_phoff + i * sizeof(*ph))) == sizeof(*ph);
}

/* Where the file has what the program will have at this address; -1 if nowhere. */
static off_t offset_of(int fd, const Elf64_Ehdr *eh, uint64_t addr)
{
    Elf64_Phdr ph;

    for (unsigned i = 0; header_at(fd, eh, i, &ph); i++)
        if (ph.p_type == PT_LOAD && addr >= ph.p_vaddr && addr - ph.p_vaddr < ph.p_filesz)
            return (off_t)(addr - ph.p_vaddr + ph.p_offset);
    return -1;
}

static bool entry_at(int fd, const Elf64_Phdr *dynamic, uint64_t i, Elf64_Dyn *d)
{
    return i < dynamic->p_filesz / sizeof(*d) &&
           pread(fd, d, sizeof(*d), (off_t)(dynamic->p_offset + i * sizeof(*d))) == sizeof(*d);
}

/* The first name of that kind, DT_NEEDED or DT_SONAME, that begins with prefix. */
static bool names(int fd, const Elf64_Ehdr *eh, const Elf64_Phdr *dynamic, Elf64_Sxword tag,
                  const char *prefix, char name[NAME_MAX + 1])
{
    off_t strings = -1;
    Elf64_Dyn d;

    for (uint64_t i = 0; entry_at(fd, dynamic, i, &d); i++)
        if (d.d_tag == DT_STRTAB)
            strings = offset_of(fd, eh, d.d_un.d_ptr);
    for (uint64_t i = 0; strings >= 0 && entry_at(fd, dynamic, i, &d); i++) {
        ssize_t got;

        if (d.d_tag != tag)
            continue;
        got = pread(fd, name, NAME_MAX, strings + (off_t)(uint32_t)d.d_un.d_val);
        name[got > 0 ? got : 0] = '\0';
        if (strncmp(name, prefix, strlen(prefix)) == 0)
            return true;
    }
    return false;
}

/* As names, of a file. */
static bool file_names(const char *path, Elf64_Sxword tag, const char *prefix,
                       char name[NAME_MAX + 1])
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    bool found = false;
    Elf64_Ehdr eh;
    Elf64_Phdr ph;

    if (fd < 0)
        return false;
    if (pread(fd, &eh, sizeof(eh), 0) == sizeof(eh) && eh.e_phentsize == sizeof(ph))
        for (unsigned i = 0; !found && header_at(fd, &eh, i, &ph); i++)
            found = ph.p_type == PT_DYNAMIC && names(fd, &eh, &ph, tag, prefix, name);
    close(fd);
    return found;
}

bool elf_needs(const char *command, const char *prefix, char name[NAME_MAX + 1])
{
    char path[PATH_MAX], runs[PATH_MAX];

    return elf_search(command, path) && elf_check(path, runs) == ELF_FINE &&
           file_names(runs, DT_NEEDED, prefix, name);
}

bool elf_is_named(const char *path, const char *name)
{
    char own[NAME_MAX + 1];

    return file_names(path, DT_SONAME, name, own) && strcmp(own, name) == 0;
}

const char *elf_look(const char *command, char runs[PATH_MAX], const char **then)
{
    static const char *const words[] = {
        [ELF_NARROW] = "a 32-bit program, and the library is not",
        [ELF_FOREIGN] = "built for another machine, and the library is not",
        [ELF_STATIC] = "statically linked: LD_PRELOAD has no effect",
        [ELF_MUSL] = "built for musl, and the library for glibc",
        [ELF_GO] = "a Go program: it calls the kernel without libc",
        [ELF_SET_ID] = "set-user-ID or set-group-ID: LD_PRELOAD has no effect",
        [ELF_CAPABLE] = "a program with file capabilities: LD_PRELOAD has no effect",
    };
    char path[PATH_MAX];
    enum elf_why why = elf_search(command, path) ? elf_check(path, runs) : ELF_FINE;

    *then = why == ELF_MUSL ? "it will not start" : "it runs on plain TCP";
    return words[why];
}
