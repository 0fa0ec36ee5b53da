/* The process-wide side of the C core: start and end, its log, the allocator's settings. Servers
 * and channels call it themselves; a program needs it only to give the core's own log lines a
 * place. */
#ifndef ND_RPC_INIT_H
#define ND_RPC_INIT_H

#include "storage/base/log.h"

/* Counted. The first one sets both malloc thresholds (big messages otherwise give their pages back
 * to the kernel each time) and takes the core's log: its lines go to `log` as component "grpc", or
 * nowhere while nobody gave one. NULL leaves the present log. Not before a fork that goes on using
 * the stack.
 * @thread any */
void nd_rpc_init(struct nd_log *log);
/* The last one waits for the core's threads. `log` as given to nd_rpc_init; unused afterwards. */
void nd_rpc_shutdown(struct nd_log *log);
/* What the core says on this thread is dropped, because the caller tells it in better words. */
void nd_rpc_hush(bool hush);

#endif
