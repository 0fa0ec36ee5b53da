/* Room for request bodies above 1 MiB, of all requests together. It is taken as the bytes arrive,
 * so that who is silent holds none, and by identity: one may have half of it, or one whole body
 * where that is more, so that no single one keeps the others out. @thread any */
#ifndef ND_HTTP_ROOM_H
#define ND_HTTP_ROOM_H

#include "storage/base/slice.h"

struct nd_http_room;

/* `body_max`: the largest body of any route. */
struct nd_http_room *nd_http_room_new(uint64_t max, uint64_t body_max);
void nd_http_room_free(struct nd_http_room *room); /* all was given back. NULL passes */

/* A number for whom the room is taken for; no name is kept. */
uint64_t nd_http_room_identity(const struct nd_http_room *room, struct nd_slice who);
bool nd_http_room_take(struct nd_http_room *room, uint64_t identity, uint64_t bytes);
void nd_http_room_give(struct nd_http_room *room, uint64_t identity, uint64_t bytes);
/* Would it be taken now? Nothing is. */
bool nd_http_room_fits(struct nd_http_room *room, uint64_t identity, uint64_t bytes);

#endif
