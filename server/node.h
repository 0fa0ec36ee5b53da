/* One running node: everything between the settings and the signals, put together in the boot order
 * and taken apart in the stop order of README.md. */
#ifndef ND_NODE_H
#define ND_NODE_H

#include "storage/base/inbox.h"
#include "storage/base/log.h"

#include "server/config.h"

struct nd_disk_watch;
struct nd_node;

struct nd_node_options {
    const struct nd_launch *launch;
    struct nd_log *log;
    struct nd_disk_watch *disk; /* all work on the disk goes through it; outlives the node */
    struct nd_inbox *inbox;     /* of the main thread */
    struct nd_msg *caught_up; /* posted there once the metadata has caught up: call nd_node_ready */
    /* Of the first user: what NARAD_ADMIN_PASSWORD says, valid until nd_node_ready() returned;
     * NULL: one is made up and logged. */
    const char *admin_password;
};

/* Boot up to the listeners; produce is accepted from its return on. Errors are sentences for an
 * operator; nothing of the node is left then. */
ND_CHECKED enum nd_err nd_node_start(struct nd_node **out, const struct nd_node_options *options,
                                     struct nd_errmsg *msg);
/* The metadata has caught up: own, be healthy, tell the ready file. @thread main */
ND_CHECKED enum nd_err nd_node_ready(struct nd_node *node, struct nd_errmsg *msg);
/* SIGHUP: read the certificates of the listeners again. What fails stays as it was; both are told
 * in the log. @thread main */
void nd_node_reload(struct nd_node *node);
/* Where clients on this machine connect: "127.0.0.1:7941". @thread main */
void nd_node_address(const struct nd_node *node, char *out, size_t out_size);
/* The same of the HTTP gateway; "": there is none. */
void nd_node_http_address(const struct nd_node *node, char *out, size_t out_size);
/* The stop sequence, to the end; frees. @thread main */
void nd_node_stop(struct nd_node *node);

#endif
