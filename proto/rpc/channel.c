#include "proto/rpc/channel.h"

#include <string.h>

#include "storage/base/alloc.h"

#include "proto/rpc/init.h"
#include "proto/rpc/tls.h"

enum { MESSAGE_BYTES_MAX_DEFAULT = 20 << 20 };

struct channel_post {
    struct nd_list link;
    void (*run)(void *data);
    void *data;
};

static void on_wake(struct nd_rpc_tag *tag, bool ok);

/* --- making --- */

static enum nd_err core_new(struct nd_rpc_channel *channel,
                            const struct nd_rpc_channel_options *options, struct nd_errmsg *msg)
{
    grpc_channel_credentials *credentials = NULL;
    enum nd_err err = nd_rpc_channel_credentials(&credentials, options, msg);
    if (err != ND_OK) {
        return err;
    }
    struct nd_rpc_args args = {.count = 0};
    uint32_t bytes_max = options->message_bytes_max;

    nd_rpc_args_common(&args, bytes_max > 0 ? bytes_max : (uint32_t)MESSAGE_BYTES_MAX_DEFAULT,
                       options->keepalive_time_ms, options->keepalive_timeout_ms);
    /* A connection of its own, and no second guesses: a repeated produce is the caller's decision.
     */
    nd_rpc_args_int(&args, GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
    nd_rpc_args_int(&args, GRPC_ARG_ENABLE_RETRIES, 0);
    nd_rpc_args_int(&args, GRPC_ARG_SERVICE_CONFIG_DISABLE_RESOLUTION, 1);
    nd_rpc_args_int(&args, GRPC_ARG_ENABLE_HTTP_PROXY, 0);
    nd_rpc_args_int(&args, GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 100);
    nd_rpc_args_int(&args, GRPC_ARG_MIN_RECONNECT_BACKOFF_MS,
                    5000); /* a connect's own time limit */
    nd_rpc_args_int(&args, GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 2000);
    if (options->tls && options->tls_server_name != NULL && options->tls_server_name[0] != '\0') {
        nd_rpc_args_text(&args, GRPC_SSL_TARGET_NAME_OVERRIDE_ARG, options->tls_server_name);
    }
    grpc_channel_args list = {args.count, args.list};
    channel->core = grpc_channel_create(options->target, credentials, &list);
    grpc_channel_credentials_release(credentials);
    if (!grpc_channel_support_connectivity_watcher(channel->core)) {
        nd_errmsg_set(msg, "not a target: \"%s\"", options->target);
        return ND_ERR_INVALID_ARGUMENT;
    }
    return ND_OK;
}

static void channel_run(void *arg)
{
    struct nd_rpc_channel *channel = arg;

    while (nd_rpc_queue_step(channel->queue)) {
    }
}

static enum nd_err queue_take(struct nd_rpc_channel *channel, struct nd_rpc_server *server,
                              struct nd_errmsg *msg)
{
    if (server != NULL) {
        channel->server = server;
        channel->queue = nd_rpc_server_queue_borrow(server);
        return ND_OK;
    }
    channel->queue = grpc_completion_queue_create_for_next(NULL);
    if (!nd_thread_start(&channel->thread, "rpc-channel", channel_run, channel)) {
        nd_errmsg_set(msg, "cannot start the channel's thread");
        return ND_ERR_NO_MEMORY;
    }
    return ND_OK;
}

static void channel_delete(struct nd_rpc_channel *channel)
{
    nd_rpc_metadata_release(&channel->metadata);
    if (channel->core != NULL) {
        grpc_channel_destroy(channel->core);
    }
    if (channel->server != NULL) {
        nd_rpc_server_queue_return(channel->server);
    } else if (channel->queue != NULL) {
        grpc_completion_queue_shutdown(channel->queue);
        nd_thread_join(&channel->thread);
        while (nd_rpc_queue_step(channel->queue)) { /* when the thread never was */
        }
        grpc_completion_queue_destroy(channel->queue);
    }
    for (size_t i = 0; i < channel->paths_count; i++) {
        nd_free(channel->paths[i].path);
    }
    nd_arena_release(&channel->arena);
    nd_cond_release(&channel->idle);
    nd_mutex_release(&channel->lock);
    nd_rpc_shutdown(NULL);
    nd_free(channel);
}

enum nd_err nd_rpc_channel_new(struct nd_rpc_channel **out,
                               const struct nd_rpc_channel_options *options, struct nd_errmsg *msg)
{
    struct nd_rpc_channel *channel = nd_xcalloc(1, sizeof *channel);
    uint32_t bytes_max = options->message_bytes_max;

    nd_rpc_init(NULL);
    nd_mutex_init(&channel->lock);
    nd_cond_init(&channel->idle);
    nd_list_init(&channel->calls);
    nd_list_init(&channel->posts);
    channel->wake.run = on_wake;
    nd_arena_init(
        &channel->arena,
        nd_rpc_decode_bytes_max(bytes_max > 0 ? bytes_max : (uint32_t)MESSAGE_BYTES_MAX_DEFAULT));
    enum nd_err err =
        nd_rpc_metadata_add(&channel->metadata, options->metadata, options->metadata_count, msg);
    if (err != ND_OK) {
        goto fail;
    }
    err = core_new(channel, options, msg);
    if (err != ND_OK) {
        goto fail;
    }
    err = queue_take(channel, options->server, msg);
    if (err != ND_OK) {
        goto fail;
    }
    *out = channel;
    return ND_OK;

fail:
    channel_delete(channel);
    return err;
}

void nd_rpc_channel_free(struct nd_rpc_channel *channel)
{
    if (channel == NULL) {
        return;
    }
    nd_mutex_lock(&channel->lock);
    channel->closing = true;
    ND_LIST_FOREACH (&channel->calls, link) {
        struct nd_rpc_open *open = ND_CONTAINER_OF(link, struct nd_rpc_open, link);
        grpc_call_cancel(open->core, NULL);
    }
    while (channel->busy > 0 || channel->waking) {
        nd_cond_wait(&channel->idle, &channel->lock);
    }
    nd_mutex_unlock(&channel->lock);
    channel_delete(channel);
}

/* --- calls --- */

static void *path_handle_locked(struct nd_rpc_channel *channel, const char *path)
    ND_REQUIRES(channel->lock)
{
    for (size_t i = 0; i < channel->paths_count; i++) {
        if (strcmp(channel->paths[i].path, path) == 0) {
            return channel->paths[i].handle;
        }
    }
    /* Beyond what is kept here the core finds its own handle of the path again, slower. */
    void *handle = grpc_channel_register_call(channel->core, path, NULL, NULL);
    if (channel->paths_count < ND_RPC_CHANNEL_PATHS_MAX) {
        channel->paths[channel->paths_count].path = nd_xstrdup(path);
        channel->paths[channel->paths_count].handle = handle;
        channel->paths_count += 1;
    }
    return handle;
}

static gpr_timespec deadline_in(uint32_t deadline_ms)
{
    if (deadline_ms == 0) {
        return gpr_inf_future(GPR_CLOCK_MONOTONIC);
    }
    return gpr_time_add(gpr_now(GPR_CLOCK_MONOTONIC),
                        gpr_time_from_millis(deadline_ms, GPR_TIMESPAN));
}

bool nd_rpc_channel_open(struct nd_rpc_channel *channel, struct nd_rpc_open *open, const char *path,
                         uint32_t deadline_ms)
{
    nd_mutex_lock(&channel->lock);
    bool closing = channel->closing;
    if (!closing) {
        open->core = grpc_channel_create_registered_call(
            channel->core, NULL, GRPC_PROPAGATE_DEFAULTS, channel->queue,
            path_handle_locked(channel, path), deadline_in(deadline_ms), NULL);
        nd_list_append(&channel->calls, &open->link);
        channel->busy += 1;
    }
    nd_mutex_unlock(&channel->lock);
    return !closing;
}

static void busy_drop_locked(struct nd_rpc_channel *channel) ND_REQUIRES(channel->lock)
{
    channel->busy -= 1;
    if (channel->closing) {
        nd_cond_broadcast(&channel->idle);
    }
}

void nd_rpc_channel_busy_drop(struct nd_rpc_channel *channel)
{
    nd_mutex_lock(&channel->lock);
    busy_drop_locked(channel);
    nd_mutex_unlock(&channel->lock);
}

void nd_rpc_channel_close(struct nd_rpc_channel *channel, struct nd_rpc_open *open)
{
    nd_mutex_lock(&channel->lock);
    nd_list_remove(&open->link);
    grpc_call_unref(open->core);
    busy_drop_locked(channel);
    nd_mutex_unlock(&channel->lock);
}

/* --- posts --- */

/* The core has no public way to wake a queue; watching the channel's state with a deadline that is
 * over comes back at once and touches nothing. */
static void wake_locked(struct nd_rpc_channel *channel) ND_REQUIRES(channel->lock)
{
    channel->waking = true;
    ND_RPC_TAG_RELEASE(&channel->wake);
    grpc_channel_watch_connectivity_state(
        channel->core, grpc_channel_check_connectivity_state(channel->core, 0),
        gpr_inf_past(GPR_CLOCK_MONOTONIC), channel->queue, &channel->wake);
}

static void on_wake(struct nd_rpc_tag *tag, bool ok)
{
    struct nd_rpc_channel *channel = ND_CONTAINER_OF(tag, struct nd_rpc_channel, wake);
    struct nd_list mine = ND_LIST_INIT(mine);

    (void)ok;
    nd_mutex_lock(&channel->lock);
    nd_list_move(&mine, &channel->posts);
    channel->waking = false;
    if (channel->closing) {
        nd_cond_broadcast(&channel->idle);
    }
    nd_mutex_unlock(&channel->lock);
    for (struct nd_list *link; (link = nd_list_pop(&mine)) != NULL;) {
        struct channel_post *post = ND_CONTAINER_OF(link, struct channel_post, link);
        post->run(post->data);
        nd_free(post);
        nd_rpc_channel_busy_drop(channel);
    }
}

void nd_rpc_channel_post(struct nd_rpc_channel *channel, void (*run)(void *data), void *data)
{
    struct channel_post *post = nd_xcalloc(1, sizeof *post);

    post->run = run;
    post->data = data;
    nd_mutex_lock(&channel->lock);
    nd_list_append(&channel->posts, &post->link);
    channel->busy += 1;
    if (!channel->waking) {
        wake_locked(channel);
    }
    nd_mutex_unlock(&channel->lock);
}
