/* How many consumes each client without credentials has under way. For a gateway alone: to a broker
 * elsewhere all its clients are one address, since whoever comes over TCP is not believed to speak
 * for others. @thread any */
#ifndef ND_IN_FLIGHT_H
#define ND_IN_FLIGHT_H

#include "storage/base/err.h"

struct nd_in_flight;

/* `limit`: of one client; 0: none. */
struct nd_in_flight *nd_in_flight_new(uint64_t limit);
void nd_in_flight_free(struct nd_in_flight *counts); /* nothing is under way any more */
/* LIMITED: "too many in-flight consume requests for this identity (limit N per node)". */
ND_CHECKED enum nd_err nd_in_flight_begin(struct nd_in_flight *counts, const char *peer,
                                          uint32_t weight, struct nd_errmsg *msg);
void nd_in_flight_end(struct nd_in_flight *counts, const char *peer, uint32_t weight);

#endif
