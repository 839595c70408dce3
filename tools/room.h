/*
 * room.h - whether processes can show their connections in /dev/shm (ipoib_fallback/pub.h). Those
 * that cannot have rails all the same.
 */
#ifndef TOOLS_ROOM_H
#define TOOLS_ROOM_H

#include <stdint.h>

/* Why a process of this user's that begins now could not show its connections, in words to follow a
 * colon. NULL: nothing that is known is in the way. Static text. */
const char *room_lacking(void);

/* Why processes may be missing in what is shown, in words to follow a colon: `lacking`, which
 * room_lacking has given or is NULL, and that `others` processes of another version were seen.
 * Returns text, or NULL: none is known to be missing. */
#define ROOM_MISSING 200
const char *room_missing(const char *lacking, uint64_t others, char text[ROOM_MISSING]);

#endif
