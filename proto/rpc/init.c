#include "proto/rpc/init.h"

#include <grpc/support/log.h>
#include <malloc.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "storage/base/thread.h"

#include "proto/rpc/core.h"

/* The core has one log function for the process, so this state is the process's too. */
static struct nd_mutex log_lock = {PTHREAD_MUTEX_INITIALIZER};
static struct nd_log *log_target; /* guarded by log_lock */
static pthread_once_t once = PTHREAD_ONCE_INIT;
static _Thread_local bool hushed; /* this thread says itself what fails */

static enum nd_log_level level_of(gpr_log_severity severity)
{
    switch (severity) {
    case GPR_LOG_SEVERITY_DEBUG: return ND_LOG_DEBUG;
    case GPR_LOG_SEVERITY_INFO: return ND_LOG_INFO;
    case GPR_LOG_SEVERITY_ERROR: break;
    }
    return ND_LOG_WARN; /* a failed handshake is "error" to the core and everyday life to us */
}

static void core_log(gpr_log_func_args *args)
{
    const char *file = strrchr(args->file, '/');
    char text[300];

    if (hushed) {
        return;
    }
    snprintf(text, sizeof text, "%s", args->message);
    for (char *at = text; *at != '\0'; at++) {
        if (*at == '"' || *at == '\\' || (unsigned char)*at < ' ') {
            *at = '\'';
        }
    }
    nd_mutex_lock(&log_lock);
    /* Anyone can make a handshake fail, again and again. */
    nd_log_lasting(log_target, level_of(args->severity), "grpc", "core message",
                   "source=%s:%d text=\"%s\"", file != NULL ? file + 1 : args->file, args->line,
                   text);
    nd_mutex_unlock(&log_lock);
}

static void process_settings(void)
{
    /* Both or none: each alone turns off glibc's own adjusting and is slower than neither. */
    mallopt(M_TRIM_THRESHOLD, 256 << 20);
    mallopt(M_MMAP_THRESHOLD, 32 << 20);
    gpr_set_log_function(core_log);
    gpr_set_log_verbosity(GPR_LOG_SEVERITY_ERROR);
}

void nd_rpc_hush(bool hush)
{
    hushed = hush;
}

void nd_rpc_init(struct nd_log *log)
{
    pthread_once(&once, process_settings);
    if (log != NULL) {
        nd_mutex_lock(&log_lock);
        log_target = log;
        nd_mutex_unlock(&log_lock);
    }
    grpc_init();
}

void nd_rpc_shutdown(struct nd_log *log)
{
    grpc_shutdown_blocking();
    nd_mutex_lock(&log_lock);
    if (log != NULL && log_target == log) {
        log_target = NULL;
    }
    nd_mutex_unlock(&log_lock);
}

void nd_rpc_args_common(struct nd_rpc_args *args, uint32_t message_bytes_max,
                        uint32_t keepalive_time_ms, uint32_t keepalive_timeout_ms)
{
    nd_rpc_args_int(args, GRPC_ARG_MAX_RECEIVE_MESSAGE_LENGTH, (int)message_bytes_max);
    nd_rpc_args_int(args, GRPC_ARG_MAX_SEND_MESSAGE_LENGTH, -1);
    nd_rpc_args_int(args, GRPC_ARG_HTTP2_BDP_PROBE, 0);
    nd_rpc_args_int(args, GRPC_ARG_HTTP2_STREAM_LOOKAHEAD_BYTES, ND_RPC_LOOKAHEAD_BYTES);
    nd_rpc_args_int(args, GRPC_ARG_ENABLE_CHANNELZ, 0);
    if (keepalive_time_ms == 0) {
        return;
    }
    nd_rpc_args_int(args, GRPC_ARG_KEEPALIVE_TIME_MS, (int)keepalive_time_ms);
    nd_rpc_args_int(args, GRPC_ARG_KEEPALIVE_TIMEOUT_MS, (int)keepalive_timeout_ms);
    nd_rpc_args_int(args, GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
    nd_rpc_args_int(args, GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
    nd_rpc_args_int(args, GRPC_ARG_HTTP2_MIN_SENT_PING_INTERVAL_WITHOUT_DATA_MS,
                    (int)keepalive_time_ms);
}
