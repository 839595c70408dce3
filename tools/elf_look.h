/*
 * elf_look.h - whether LD_PRELOAD can reach a program, told from its file.
 */
#ifndef TOOLS_ELF_LOOK_H
#define TOOLS_ELF_LOOK_H

#include <limits.h>
#include <stdbool.h>

/*
 * Finds command as execvp would, follows `#!` lines, and reads the file of the program that
 * will really run. Returns why the library has no effect on it, in words to follow "NAME is ",
 * or NULL if nothing speaks against it or the file cannot be read. The result is static text.
 */
const char *elf_look(const char *command);

/* execvp's search along PATH: the file that command names. False: there is none. */
bool elf_search(const char *command, char path[PATH_MAX]);

#endif
