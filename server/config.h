/* Settings of a node: one table (config_table.c) says every key, its environment variable, its
 * flag, its type, range and default; the loader goes defaults -> JSON file -> NARAD_* -> flags,
 * then one pass of rules. Every problem found on the way is collected, so that an operator sees all
 * of them at once. */
#ifndef ND_CONFIG_H
#define ND_CONFIG_H

#include "storage/base/buf.h"
#include "storage/base/err.h"

/* Texts are owned; durations are milliseconds; lists are comma separated. */
struct nd_settings {
    char *http_addr, *http_pprof_addr, *http_metrics_addr;
    char *http_tls_cert_file, *http_tls_key_file, *http_tls_client_ca_file;
    uint64_t http_read_timeout, http_write_timeout, http_idle_timeout, http_shutdown_grace;
    uint64_t http_max_consume_wait, http_max_header_bytes, http_max_connections;
    uint64_t http_max_consume_in_flight_per_identity, http_max_produce_in_flight_per_identity;
    uint64_t http_max_batch_body_bytes_in_flight;
    bool http_metrics_unauthenticated; /* not set: what compat says */

    uint64_t limits_produce_messages_per_second, limits_produce_bytes_per_second; /* 0: none */
    uint64_t limits_consume_messages_per_second;

    char *grpc_addr;
    char *grpc_socket; /* "": <data_dir>/narad.sock; "none": no Unix socket */
    char *grpc_tls_cert_file, *grpc_tls_key_file, *grpc_tls_client_ca_file;

    bool gateway_enabled;
    uint64_t gateway_threads;

    uint64_t server_net_threads, server_shards; /* 0: one per two cores */

    char *cluster_addr, *cluster_node_id, *cluster_peers, *cluster_initial_members;
    char *cluster_advertise_addr;
    uint64_t cluster_raft_snapshot_threshold, cluster_raft_snapshot_interval;
    uint64_t cluster_raft_trailing_logs;

    char *storage_data_dir, *storage_codec, *storage_compression_level;
    uint64_t storage_idle_log_eviction_ms, storage_cold_retention_walk_ms;
    uint64_t storage_tail_memory_bytes, storage_cache_bytes, storage_wal_keep_bytes;
    uint64_t storage_wal_file_bytes, storage_disk_reserve_bytes;
    uint64_t storage_consumer_offset_commit_interval_ms;
    bool storage_ingress_wal_prealloc;

    uint64_t topic_default_partitions, topic_max_partitions, topic_default_retention_age_ms;
    uint64_t topic_default_visibility_timeout_ms, topic_default_max_in_flight_per_partition;
    uint64_t topic_default_max_acked_ahead_per_partition;

    uint64_t fanout_max_batch_records, fanout_max_batch_bytes, fanout_linger_ms;

    char *log_level, *log_format;

    bool security_enabled;
    char *security_cluster_tls_cert_file, *security_cluster_tls_key_file;
    char *security_cluster_tls_ca_file;
    bool security_allow_plaintext_raft, security_allow_insecure_cluster;
    bool security_allow_legacy_cluster_auth;

    char *remotes_allowed_hosts, *remotes_allowed_ports;
    bool remotes_allow_addresses, remotes_api_hop_encrypted;
    uint64_t remotes_max_held_bytes;

    char *compat;
};

enum nd_setting_type {
    ND_SETTING_TEXT,
    ND_SETTING_BOOL,
    ND_SETTING_NUMBER,
    ND_SETTING_DURATION, /* "1h30m", "500ms"; stored as milliseconds */
    ND_SETTING_CHOICE,
    ND_SETTING_LIST, /* JSON: array of strings; environment: comma separated */
};

enum nd_setting_use {
    ND_SETTING_USED,
    ND_SETTING_LATER,   /* checked; what it configures is not in this build */
    ND_SETTING_REFUSED, /* as LATER, but setting it refuses the start: it would promise something */
    ND_SETTING_IGNORED, /* accepted for compatibility, one warning */
};

struct nd_setting {
    const char *key;  /* "http.addr" */
    const char *env;  /* NULL: file only */
    const char *flag; /* "--addr" or NULL */
    enum nd_setting_type type;
    enum nd_setting_use use;
    size_t offset;        /* in struct nd_settings */
    const char *standard; /* default, spelled as an environment variable would be */
    uint64_t min, max;    /* NUMBER, DURATION */
    bool zero_too;        /* 0 is allowed below min */
    const char *choices;  /* CHOICE: space separated */
    const char *doc;
};

/* The table. */
extern const struct nd_setting nd_settings_table[];
extern const size_t nd_settings_count;

enum { ND_SETTINGS_MAX = 96 };

/* What `narad serve` was asked to do. */
struct nd_launch {
    struct nd_settings settings;
    const char *sources[ND_SETTINGS_MAX]; /* by table index: "default", "file", variable, flag */
    char *config_file;                    /* NULL: none */
    char *ready_file;                     /* NULL: none */
    bool dev;
    bool temporary_data; /* --dev without a data directory: serve makes and removes one */
    bool help;           /* --help was among the flags; nothing else counts */
};

struct nd_launch_input {
    int argc; /* flags after "serve" */
    const char *const *argv;
    /* As getenv(3); a parameter so that tests need no process environment. */
    const char *(*getenv)(void *arg, const char *name);
    void *getenv_arg;
    const char *host_name; /* default of cluster.node_id */
};

/* Fill in `out` (any contents; release it in every case). INVALID_ARGUMENT with all problems in
 * `problems` as "config: a; b; c", opening nothing but the config file. `warnings` gets one
 * sentence about keys that are accepted and ignored, or stays empty. */
ND_CHECKED enum nd_err nd_launch_load(struct nd_launch *out, const struct nd_launch_input *input,
                                      struct nd_buf *problems, struct nd_buf *warnings);
void nd_launch_release(struct nd_launch *launch);

/* Defaults only. */
void nd_settings_init(struct nd_settings *out);
void nd_settings_release(struct nd_settings *settings);
/* The text of a value, as it would be given by an environment variable; the caller's (nd_free). */
char *nd_setting_show(const struct nd_setting *setting, const struct nd_settings *settings);
/* Flags, variables, meaning, default and range of every key. */
void nd_settings_help(struct nd_buf *out);

#endif
