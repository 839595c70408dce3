/*
 * rules_look.h - what is strange about the files of rules themselves, for check and doctor.
 */
#ifndef TOOLS_RULES_LOOK_H
#define TOOLS_RULES_LOOK_H

#include <stdbool.h>

enum { RULES_LOOK = 320 };

/* After cfg_init. Looks at the user's and the system's file, if those are the rules that are read,
 * for something that stops nobody but that nobody will have meant. text: of the first such thing
 * the file, a colon and words. False: none. */
bool rules_look(char text[RULES_LOOK]);

#endif
