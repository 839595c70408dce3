/*
 * room.h - whether processes can show their connections in /dev/shm (ipoib_fallback/pub.h). Those that cannot have rails all the same.
 */
#ifndef TOOLS_ROOM_H
#define TOOLS_ROOM_H

/* Why one of this user's that begins now could not, in words to follow a colon; NULL: nothing is known to be in the way. Static text. */
const char *room_lacking(void);

#endif
