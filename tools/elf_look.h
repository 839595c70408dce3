/*
 * elf_look.h - whether LD_PRELOAD can reach a program, told from its file.
 */
#ifndef TOOLS_ELF_LOOK_H
#define TOOLS_ELF_LOOK_H

#include <limits.h>
#include <stdbool.h>

/* What is in the way, the first of them. */
enum elf_why {
    ELF_FINE,
    ELF_UNKNOWN, /* no ELF file, or it cannot be read */
    ELF_NARROW,  /* 32 bits */
    ELF_FOREIGN, /* another machine's */
    ELF_STATIC,
    ELF_MUSL, /* for another libc than ours */
    ELF_GO,
    ELF_SET_ID,
    ELF_CAPABLE, /* file capabilities */
};

/* Follows `#!` lines, those that name env too, from the file at path to the program that really
 * runs, whose path is put into runs, and reads its file. */
enum elf_why elf_check(const char *path, char runs[PATH_MAX]);

/* Would the dynamic linker load the file into programs of this machine, as far as its first bytes
 * tell? False: errno, 0 if it was read. */
bool elf_is_library(const char *path);

/* Does it say itself that it is the library of that name (DT_SONAME), wherever it lies and however
 * its file is named? */
bool elf_is_named(const char *path, const char *name);

/* Is it text without a `#!` line, which shells run themselves and the kernel does not? Not what
 * cannot be read. */
bool elf_is_text(const char *path);

/*
 * Finds command as execvp would, follows `#!` lines, and reads the file of the program that will
 * really run, whose path is put into runs. Returns why the library has no effect on it, in words to
 * follow "NAME is ", or NULL if nothing speaks against it or the file cannot be read; in *then what
 * becomes of it with the library: "it ...". Both are static text.
 */
const char *elf_look(const char *command, char runs[PATH_MAX], const char **then);

/* The first shared library that the program which will really run is linked to and whose name
 * begins with prefix; its name is put into name. False: none, or the file is not understood. */
bool elf_needs(const char *command, const char *prefix, char name[NAME_MAX + 1]);

/* execvp's search along PATH: the file that command names. False: there is none, errno is ENOENT;
 * or none that may be executed, EACCES. */
bool elf_search(const char *command, char path[PATH_MAX]);

#endif
