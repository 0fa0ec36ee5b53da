/* Can a node listen where its settings say? Asked before the data directory is touched, since a
 * start takes seconds until it listens. */
#ifndef ND_ADDRESSES_H
#define ND_ADDRESSES_H

#include "storage/base/err.h"

#include "server/config.h"

/* Binds each address and lets go of it at once, never listening: whoever waits for a port to open
 * must not be let in before the node answers. So it is a look, no claim; who is quicker wins, and
 * the listener itself says so then. UNAVAILABLE: "grpc.addr: cannot listen on 127.0.0.1:7941:
 * Address already in use"; the addresses are well formed (config_check.h). @thread main */
ND_CHECKED enum nd_err nd_addresses_check(const struct nd_settings *settings,
                                          struct nd_errmsg *msg);

#endif
