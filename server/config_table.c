/* Every setting there is. To add one: a member in struct nd_settings, a line here, a line in
 * narad.example.json; the tests compare all three. */
#include "cluster/topic.h"
#include "server/config.h"

#define AT(member)    offsetof(struct nd_settings, member)
#define TEXT          ND_SETTING_TEXT
#define BOOL          ND_SETTING_BOOL
#define NUMBER        ND_SETTING_NUMBER
#define DURATION      ND_SETTING_DURATION
#define CHOICE        ND_SETTING_CHOICE
#define LIST          ND_SETTING_LIST
#define USED          ND_SETTING_USED
#define LATER         ND_SETTING_LATER
#define REFUSED       ND_SETTING_REFUSED
#define IGNORED       ND_SETTING_IGNORED
#define ANY           .max = UINT64_MAX
#define FROM(n)       .min = (n), .max = UINT64_MAX
#define RANGE(lo, hi) .min = (lo), .max = (hi)
#define ZERO_OR(n)    .min = (n), .max = UINT64_MAX, .zero_too = true

enum { HOUR_MS = 3600 * 1000, HALF_DAY_MS = 12 * HOUR_MS, DAY_MS = 24 * HOUR_MS };
#define MIB (UINT64_C(1) << 20)

const struct nd_setting nd_settings_table[] = {
    /* key, environment, flag, type, use, member, default, range or choices, meaning */
    {"grpc.addr", "NARAD_GRPC_ADDR", "--grpc-addr", TEXT, USED, AT(grpc_addr), ":7941",
     .doc = "where clients connect; port 0 takes any free one"},
    {"grpc.socket", "NARAD_GRPC_SOCKET", "--grpc-socket", TEXT, USED, AT(grpc_socket), "",
     .doc = "Unix socket for local clients; empty: <data_dir>/narad.sock; none: no socket"},
    {"grpc.tls_cert_file", "NARAD_GRPC_TLS_CERT_FILE", NULL, TEXT, USED, AT(grpc_tls_cert_file), "",
     .doc = "certificate chain of the TCP listener, PEM, read again on SIGHUP; empty: no TLS"},
    {"grpc.tls_key_file", "NARAD_GRPC_TLS_KEY_FILE", NULL, TEXT, USED, AT(grpc_tls_key_file), "",
     .doc = "its private key, without a password"},
    {"grpc.tls_client_ca_file", "NARAD_GRPC_TLS_CLIENT_CA_FILE", NULL, TEXT, USED,
     AT(grpc_tls_client_ca_file), "",
     .doc = "authorities; every client must then show a certificate of one of them"},

    {"http.addr", "NARAD_HTTP_ADDR", "--addr", TEXT, USED, AT(http_addr), ":7942",
     .doc = "where the HTTP gateway listens"},
    {"http.pprof_addr", "NARAD_HTTP_PPROF_ADDR", "--pprof-addr", TEXT, LATER, AT(http_pprof_addr),
     "", .doc = "profiling listener; empty: off"},
    {"http.read_timeout", "NARAD_HTTP_READ_TIMEOUT", NULL, DURATION, USED, AT(http_read_timeout),
     "10s", FROM(1), .doc = "longest time for a request to arrive"},
    {"http.write_timeout", "NARAD_HTTP_WRITE_TIMEOUT", NULL, DURATION, USED, AT(http_write_timeout),
     "30s", FROM(1), .doc = "longest time for an answer; above http.max_consume_wait"},
    {"http.idle_timeout", "NARAD_HTTP_IDLE_TIMEOUT", NULL, DURATION, USED, AT(http_idle_timeout),
     "1m0s", FROM(1), .doc = "an unused connection is closed after it"},
    {"http.shutdown_grace", "NARAD_HTTP_SHUTDOWN_GRACE", NULL, DURATION, USED,
     AT(http_shutdown_grace), "10s", RANGE(1, DAY_MS),
     .doc = "how long a stopping node waits for open calls; at least http.max_consume_wait"},
    {"http.max_consume_wait", "NARAD_HTTP_MAX_CONSUME_WAIT", NULL, DURATION, USED,
     AT(http_max_consume_wait), "10s", ANY, .doc = "longest long poll over HTTP; 0: 30 s"},
    {"http.max_header_bytes", "NARAD_HTTP_MAX_HEADER_BYTES", NULL, NUMBER, USED,
     AT(http_max_header_bytes), "65536", RANGE(4096, MIB), .doc = "bytes of a request's head"},
    {"http.max_connections", "NARAD_HTTP_MAX_CONNECTIONS", NULL, NUMBER, USED,
     AT(http_max_connections), "4096", ANY, .doc = "open HTTP connections; 0: no cap"},
    {"http.max_consume_in_flight_per_identity", "NARAD_HTTP_MAX_CONSUME_IN_FLIGHT_PER_IDENTITY",
     NULL, NUMBER, USED, AT(http_max_consume_in_flight_per_identity), "1024", ANY,
     .doc = "polls of one user at a time, a batch counts as its size up to 100; 0: no cap"},
    {"http.max_produce_in_flight_per_identity", "NARAD_HTTP_MAX_PRODUCE_IN_FLIGHT_PER_IDENTITY",
     NULL, NUMBER, USED, AT(http_max_produce_in_flight_per_identity), "0", ANY,
     .doc = "messages of one user being stored at a time; 0: no cap"},
    {"http.max_batch_body_bytes_in_flight", "NARAD_HTTP_MAX_BATCH_BODY_BYTES_IN_FLIGHT", NULL,
     NUMBER, USED, AT(http_max_batch_body_bytes_in_flight), "0", ANY,
     .doc = "bytes of batch bodies at a time; 0: the node's budget"},
    {"http.metrics_addr", "NARAD_HTTP_METRICS_ADDR", NULL, TEXT, USED, AT(http_metrics_addr), "",
     .doc = "moves /metrics to a listener of its own"},
    {"http.metrics_unauthenticated", "NARAD_HTTP_METRICS_UNAUTHENTICATED", NULL, BOOL, USED,
     AT(http_metrics_unauthenticated), "false",
     .doc = "metrics without credentials; not set: compat 1.2 gives them, 3 does not"},
    {"http.tls_cert_file", "NARAD_HTTP_TLS_CERT_FILE", NULL, TEXT, USED, AT(http_tls_cert_file), "",
     .doc = "certificate of the HTTP listener"},
    {"http.tls_key_file", "NARAD_HTTP_TLS_KEY_FILE", NULL, TEXT, USED, AT(http_tls_key_file), "",
     .doc = "its private key"},

    {"limits.produce_messages_per_second", "NARAD_LIMITS_PRODUCE_MESSAGES_PER_SECOND", NULL, NUMBER,
     USED, AT(limits_produce_messages_per_second), "0", ANY,
     .doc = "messages that one user may produce a second; 0: no limit"},
    {"limits.produce_bytes_per_second", "NARAD_LIMITS_PRODUCE_BYTES_PER_SECOND", NULL, NUMBER, USED,
     AT(limits_produce_bytes_per_second), "0", ANY,
     .doc = "bytes of payloads that one user may produce a second; 0: no limit"},
    {"limits.consume_messages_per_second", "NARAD_LIMITS_CONSUME_MESSAGES_PER_SECOND", NULL, NUMBER,
     USED, AT(limits_consume_messages_per_second), "0", ANY,
     .doc = "messages that one user may be given a second; 0: no limit"},
    {"http.tls_client_ca_file", "NARAD_HTTP_TLS_CLIENT_CA_FILE", NULL, TEXT, USED,
     AT(http_tls_client_ca_file), "",
     .doc = "CA that HTTP clients must show a certificate of; empty: none is asked for"},

    {"gateway.enabled", "NARAD_GATEWAY_ENABLED", NULL, BOOL, USED, AT(gateway_enabled), "true",
     .doc = "run the HTTP gateway inside the node"},
    {"gateway.threads", "NARAD_GATEWAY_THREADS", NULL, NUMBER, USED, AT(gateway_threads), "2",
     RANGE(1, 64), .doc = "threads of the gateway"},

    {"server.net_threads", "NARAD_SERVER_NET_THREADS", NULL, NUMBER, USED, AT(server_net_threads),
     "0", RANGE(0, 64), .doc = "threads that read and write the network; 0: one per two cores"},
    {"server.shards", "NARAD_SERVER_SHARDS", NULL, NUMBER, USED, AT(server_shards), "0",
     RANGE(0, 64), .doc = "threads that own partitions; 0: one per two cores"},

    {"cluster.addr", "NARAD_CLUSTER_ADDR", NULL, TEXT, LATER, AT(cluster_addr), ":7943",
     .doc = "where other nodes connect (--cluster-port N is :N)"},
    {"cluster.node_id", "NARAD_NODE_ID", "--node-id", TEXT, USED, AT(cluster_node_id), "",
     .doc = "name of this node; empty: the host name"},
    {"cluster.peers", "NARAD_CLUSTER_PEERS", NULL, LIST, REFUSED, AT(cluster_peers), "",
     .doc = "id@host:port of every member, this one included; at least 3"},
    {"cluster.initial_members", "NARAD_CLUSTER_INITIAL_MEMBERS", NULL, LIST, REFUSED,
     AT(cluster_initial_members), "", .doc = "ids that found the cluster; empty: all peers"},
    {"cluster.advertise_addr", "NARAD_CLUSTER_ADVERTISE_ADDR", NULL, TEXT, LATER,
     AT(cluster_advertise_addr), "", .doc = "address told to others when not among the peers"},
    {"cluster.raft_snapshot_threshold", "NARAD_CLUSTER_RAFT_SNAPSHOT_THRESHOLD", NULL, NUMBER, USED,
     AT(cluster_raft_snapshot_threshold), "8192", RANGE(1, UINT32_MAX),
     .doc = "metadata changes between two snapshots"},
    {"cluster.raft_snapshot_interval", "NARAD_CLUSTER_RAFT_SNAPSHOT_INTERVAL", NULL, DURATION,
     LATER, AT(cluster_raft_snapshot_interval), "2m0s", FROM(5),
     .doc = "how often a snapshot is considered"},
    {"cluster.raft_trailing_logs", "NARAD_CLUSTER_RAFT_TRAILING_LOGS", NULL, NUMBER, USED,
     AT(cluster_raft_trailing_logs), "10240", RANGE(0, UINT32_MAX),
     .doc = "metadata changes kept behind a snapshot"},

    {"storage.data_dir", "NARAD_DATA_DIR", "--data-dir", TEXT, USED, AT(storage_data_dir), "data",
     .doc = "everything the node keeps"},
    {"storage.codec", NULL, NULL, CHOICE, USED, AT(storage_codec), "zstd", .choices = "none zstd",
     .doc = "compression of segments"},
    {"storage.compression_level", NULL, NULL, CHOICE, USED, AT(storage_compression_level),
     "fastest", .choices = "fastest default better best", .doc = "how hard it tries"},
    {"storage.idle_log_eviction_ms", NULL, NULL, NUMBER, USED, AT(storage_idle_log_eviction_ms),
     "1800000", ZERO_OR(60000), .doc = "an unused partition is closed after it; 0: never"},
    {"storage.cold_retention_walk_ms", NULL, NULL, NUMBER, USED, AT(storage_cold_retention_walk_ms),
     "300000", ZERO_OR(60000),
     .doc = "pause between looks at closed partitions for aged records; 0: they keep them"},
    {"storage.tail_memory_bytes", NULL, NULL, NUMBER, USED, AT(storage_tail_memory_bytes),
     "134217728", RANGE(32 * MIB, UINT64_C(1) << 40),
     .doc = "records in memory that are not in a segment yet"},
    {"storage.cache_bytes", NULL, NULL, NUMBER, USED, AT(storage_cache_bytes), "33554432",
     RANGE(MIB, UINT64_C(1) << 40), .doc = "records kept in memory after that"},
    {"storage.wal_keep_bytes", NULL, NULL, NUMBER, USED, AT(storage_wal_keep_bytes), "134217728",
     RANGE(MIB, UINT64_C(1) << 40), .doc = "size that trimming leaves of the write-ahead log"},
    {"storage.wal_file_bytes", NULL, NULL, NUMBER, USED, AT(storage_wal_file_bytes), "67108864",
     RANGE(256 * 1024, UINT64_C(1) << 30),
     .doc = "size of one of its files, a multiple of 4096; a small one lowers the batch limit"},
    {"storage.disk_reserve_bytes", NULL, NULL, NUMBER, USED, AT(storage_disk_reserve_bytes),
     "67108864", RANGE(0, UINT64_C(1) << 40), .doc = "free space below which produce is refused"},
    {"storage.consumer_offset_commit_interval_ms", NULL, NULL, NUMBER, IGNORED,
     AT(storage_consumer_offset_commit_interval_ms), "1000", RANGE(10, 60000),
     .doc = "has no effect: every ack is on disk before it is answered"},
    {"storage.ingress_wal_prealloc", NULL, NULL, BOOL, IGNORED, AT(storage_ingress_wal_prealloc),
     "false", .doc = "has no effect: the log is always allocated ahead"},

    {"topic.default_partitions", "NARAD_TOPIC_DEFAULT_PARTITIONS", NULL, NUMBER, USED,
     AT(topic_default_partitions), "3", RANGE(3, ND_TOPIC_PARTITIONS_LIMIT),
     .doc = "partitions of a new topic"},
    {"topic.max_partitions", "NARAD_TOPIC_MAX_PARTITIONS", NULL, NUMBER, USED,
     AT(topic_max_partitions), "108", RANGE(1, ND_TOPIC_PARTITIONS_LIMIT),
     .doc = "most partitions of a topic"},
    {"topic.default_retention_age_ms", "NARAD_TOPIC_DEFAULT_RETENTION_AGE_MS", NULL, NUMBER, USED,
     AT(topic_default_retention_age_ms), "604800000", ZERO_OR(HOUR_MS),
     .doc = "age at which records of a new topic go; 0: never"},
    {"topic.default_visibility_timeout_ms", "NARAD_TOPIC_DEFAULT_VISIBILITY_TIMEOUT_MS", NULL,
     NUMBER, USED, AT(topic_default_visibility_timeout_ms), "30000", RANGE(1, HALF_DAY_MS),
     .doc = "length of a lease of a new topic"},
    {"topic.default_max_in_flight_per_partition", "NARAD_TOPIC_DEFAULT_MAX_IN_FLIGHT_PER_PARTITION",
     NULL, NUMBER, USED, AT(topic_default_max_in_flight_per_partition), "1024", RANGE(1, 1000000),
     .doc = "leases of a partition at a time"},
    {"topic.default_max_acked_ahead_per_partition",
     "NARAD_TOPIC_DEFAULT_MAX_ACKED_AHEAD_PER_PARTITION", NULL, NUMBER, USED,
     AT(topic_default_max_acked_ahead_per_partition), "1024", RANGE(1, 1000000),
     .doc = "records acked above the oldest unacked one"},

    {"fanout.max_batch_records", "NARAD_FANOUT_MAX_BATCH_RECORDS", NULL, NUMBER, LATER,
     AT(fanout_max_batch_records), "4096", RANGE(1, 1000000), .doc = "records of a fan-out batch"},
    {"fanout.max_batch_bytes", "NARAD_FANOUT_MAX_BATCH_BYTES", NULL, NUMBER, LATER,
     AT(fanout_max_batch_bytes), "4194304", RANGE(1, 16 * MIB), .doc = "bytes of a fan-out batch"},
    {"fanout.linger_ms", "NARAD_FANOUT_LINGER_MS", NULL, NUMBER, IGNORED, AT(fanout_linger_ms),
     "25", ANY, .doc = "has no effect: batches form by themselves"},

    {"log.level", "NARAD_LOG_LEVEL", "--log-level", CHOICE, USED, AT(log_level), "info",
     .choices = "debug info warn error", .doc = "least important lines shown, on standard output"},
    {"log.format", "NARAD_LOG_FORMAT", "--log-format", CHOICE, USED, AT(log_format), "json",
     .choices = "json text", .doc = "form of a line"},

    {"security.enabled", "NARAD_SECURITY_ENABLED", NULL, BOOL, USED, AT(security_enabled), "true",
     .doc = "users, passwords and grants"},
    {"security.cluster_tls_cert_file", "NARAD_CLUSTER_TLS_CERT_FILE", NULL, TEXT, REFUSED,
     AT(security_cluster_tls_cert_file), "", .doc = "certificate between nodes"},
    {"security.cluster_tls_key_file", "NARAD_CLUSTER_TLS_KEY_FILE", NULL, TEXT, REFUSED,
     AT(security_cluster_tls_key_file), "", .doc = "its private key"},
    {"security.cluster_tls_ca_file", "NARAD_CLUSTER_TLS_CA_FILE", NULL, TEXT, REFUSED,
     AT(security_cluster_tls_ca_file), "", .doc = "CA of the cluster"},
    {"security.allow_plaintext_raft", "NARAD_SECURITY_ALLOW_PLAINTEXT_RAFT", NULL, BOOL, LATER,
     AT(security_allow_plaintext_raft), "false", .doc = "peers without certificates"},
    {"security.allow_insecure_cluster", "NARAD_SECURITY_ALLOW_INSECURE_CLUSTER", NULL, BOOL, LATER,
     AT(security_allow_insecure_cluster), "false", .doc = "peers with security off"},
    {"security.allow_legacy_cluster_auth", "NARAD_SECURITY_ALLOW_LEGACY_CLUSTER_AUTH", NULL, BOOL,
     LATER, AT(security_allow_legacy_cluster_auth), "false", .doc = "peers of an older release"},

    {"remotes.allowed_hosts", "NARAD_REMOTES_ALLOWED_HOSTS", NULL, LIST, REFUSED,
     AT(remotes_allowed_hosts), "", .doc = "hosts that remote children may live on"},
    {"remotes.allowed_ports", "NARAD_REMOTES_ALLOWED_PORTS", NULL, LIST, REFUSED,
     AT(remotes_allowed_ports), "", .doc = "their ports"},
    {"remotes.allow_addresses", "NARAD_REMOTES_ALLOW_ADDRESSES", NULL, BOOL, LATER,
     AT(remotes_allow_addresses), "false", .doc = "remote hosts given as addresses"},
    {"remotes.max_held_bytes", "NARAD_REMOTES_MAX_HELD_BYTES", NULL, NUMBER, LATER,
     AT(remotes_max_held_bytes), "268435456", FROM(1), .doc = "memory for remote children"},
    {"remotes.api_hop_encrypted", "NARAD_REMOTES_API_HOP_ENCRYPTED", NULL, BOOL, LATER,
     AT(remotes_api_hop_encrypted), "false", .doc = "something outside encrypts the API"},

    {"compat", "NARAD_COMPAT", NULL, CHOICE, USED, AT(compat), "1.2", .choices = "1.2 3",
     .doc = "which release the HTTP API follows where they differ; 3: topics are shown to those "
            "with a right on them"},
};

const size_t nd_settings_count = ND_ARRAY_SIZE(nd_settings_table);
