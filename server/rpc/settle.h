/* Settles as Ack and Subscribe get them. */
#ifndef ND_SETTLE_H
#define ND_SETTLE_H

#include "proto/narad/v1/broker.pb-c.h"
#include "server/rpc/handlers.h"

enum { ND_SETTLES_MAX = 1000 }; /* of one request */

/* Fill in one item. Its result: INVALID_ARGUMENT when the handle does not parse, UNSUPPORTED when
 * the action is none. */
void nd_settle_item_get(const Narad__V1__Settle *settle, struct nd_settle_item *out);

#endif
