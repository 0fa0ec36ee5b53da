#include "rpc_pair.h"

#include <stdio.h>

#include "server/rpc/access.h"
#include "tests/support/nd_test.h"
#include "tests/support/temp_dir.h"

void rpc_pair_start(struct rpc_pair *pair, const struct nd_rpc_method *const *methods, size_t count,
                    struct nd_handlers *handlers, bool tcp)
{
    struct nd_rpc_server_options options = {.methods = methods,
                                            .methods_count = count,
                                            .authenticate = nd_access_authenticate,
                                            .user = handlers,
                                            .threads = 1,
                                            .message_bytes_max = 20 << 20};
    struct nd_errmsg msg = {""};
    char address[108];
    int port = 0;

    pair->dir = temp_dir_new();
    snprintf(address, sizeof address, tcp ? "127.0.0.1:0" : "unix:%s/s", pair->dir);
    assert_int_equal(nd_rpc_server_new(&pair->server, &options, &msg), ND_OK);
    assert_int_equal(nd_rpc_server_listen(pair->server, address, &port, &msg), ND_OK);
    assert_int_equal(nd_rpc_server_start(pair->server, &msg), ND_OK);
    if (tcp) {
        snprintf(address, sizeof address, "127.0.0.1:%d", port);
    }
    assert_int_equal(nd_rpc_channel_new(&pair->channel,
                                        &(struct nd_rpc_channel_options){.target = address}, &msg),
                     ND_OK);
}

void rpc_pair_stop(struct rpc_pair *pair)
{
    nd_rpc_channel_free(pair->channel);
    nd_rpc_server_stop(pair->server, 0);
}

void rpc_pair_free(struct rpc_pair *pair)
{
    nd_rpc_server_free(pair->server);
    temp_dir_remove(pair->dir);
}
