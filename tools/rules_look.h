/*
 * rules_look.h - what is strange about the files of rules themselves, for check and doctor.
 */
#ifndef TOOLS_RULES_LOOK_H
#define TOOLS_RULES_LOOK_H

#include <stdbool.h>

enum { RULES_LOOK = 320 };

/* After cfg_init. The first thing about the user's and the system's file, if they are those that count, that hinders nobody and that
 * nobody will have meant: the file, a colon and words. False: there is none. */
bool rules_look(char text[RULES_LOOK]);

#endif
