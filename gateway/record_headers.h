/* X-Narad-Header-<name>: a record's headers on their way through HTTP. */
#ifndef ND_RECORD_HEADERS_H
#define ND_RECORD_HEADERS_H

#include "storage/base/arena.h"

#include "gateway/http.h"
#include "proto/narad/v1/broker.pb-c.h"

/* Those of the request into the record, names in lower case. INVALID_ARGUMENT: a name that does not
 * match [a-z0-9-]{1,64}, or more than 64 of them. What they may weigh is the broker's to say.
 * Borrows from request and arena. */
ND_CHECKED enum nd_err nd_record_headers_get(const struct nd_http_request *request,
                                             struct nd_arena *arena, Narad__V1__Record *record,
                                             struct nd_errmsg *msg);
/* The record's as headers of the answer. A value that HTTP cannot carry as it is (control bytes,
 * blanks at its ends) is left out. */
void nd_record_headers_put(struct nd_http_request *request, const Narad__V1__Message *message);

#endif
