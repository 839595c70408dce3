/*
 * room.h - whether processes can show their connections in /dev/shm (ipoib_fallback/pub.h). Those that cannot have rails all the same.
 */
#ifndef TOOLS_ROOM_H
#define TOOLS_ROOM_H

#include <stdint.h>

/* Why one of this user's that begins now could not, in words to follow a colon; NULL: nothing is known to be in the way. Static text. */
const char *room_lacking(void);

/* Why processes may be missing in what is shown, likewise: that, which may be NULL, and how many processes of another version were
 * seen. Returns text, or NULL: none is known to be. */
#define ROOM_MISSING 200
const char *room_missing(const char *lacking, uint64_t others, char text[ROOM_MISSING]);

#endif
