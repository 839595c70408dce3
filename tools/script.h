/*
 * script.h - where the command's scripts lie.
 */
#ifndef TOOLS_SCRIPT_H
#define TOOLS_SCRIPT_H

/*
 * The path of a script: under share/railsock/ when installed, in a checkout's tools/, seen from
 * build/ or build/VARIANT/, or in the folder that RAILSOCK_SHARE names. NULL if it is not there, or
 * cannot be executed. To be freed.
 */
char *script_find(const char *name);

/* After script_find gave NULL: says why on stderr, as `railsock COMMAND`. */
void script_missing(const char *command, const char *name);

#endif
