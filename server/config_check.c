#include "server/config_check.h"

#include <arpa/inet.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/un.h>

#include "storage/base/alloc.h"

void nd_problem(struct nd_buf *problems, const char *format, ...)
{
    char text[1024];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    nd_buf_printf(problems, "%s%s", problems->size == 0 ? "config: " : "; ", text);
}

static size_t index_of(const char *key)
{
    for (size_t i = 0; i < nd_settings_count; i++) {
        if (strcmp(nd_settings_table[i].key, key) == 0) {
            return i;
        }
    }
    ND_UNREACHABLE();
}

static bool given(const struct nd_launch *launch, const char *key)
{
    return launch->sources[index_of(key)] != NULL;
}

static void replace(char **text, char *by)
{
    nd_free(*text);
    *text = by;
}

/* "host:port", "[v6]:port" or ":port" with a port of 0 to 65535. */
static bool address_valid(const char *text, size_t *host_size_out)
{
    const char *colon = strrchr(text, ':');
    if (colon == NULL) {
        return false;
    }
    size_t host = (size_t)(colon - text);
    if (memchr(text, ':', host) != NULL && (text[0] != '[' || colon[-1] != ']')) {
        return false; /* a bare IPv6 address cannot be told from its port */
    }
    unsigned long port = 0;
    size_t digits = strspn(colon + 1, "0123456789");
    for (size_t i = 0; i < digits && i < 6; i++) {
        port = port * 10 + (unsigned long)(colon[1 + i] - '0');
    }
    *host_size_out = host;
    return digits > 0 && digits <= 5 && colon[1 + digits] == '\0' && port <= 65535;
}

bool nd_host_is_loopback(const char *host, size_t size)
{
    char text[INET_ADDRSTRLEN];
    struct in_addr address;
    if ((size == 9 && memcmp(host, "localhost", 9) == 0) ||
        (size == 5 && memcmp(host, "[::1]", 5) == 0)) {
        return true;
    }
    if (size >= sizeof text) {
        return false;
    }
    /* A name may begin with "127." and lead anywhere: only numbers count. */
    snprintf(text, sizeof text, "%.*s", (int)size, host);
    return inet_pton(AF_INET, text, &address) == 1 && ntohl(address.s_addr) >> 24 == 127;
}

static void dev_address(const char *key, char **address, struct nd_buf *problems)
{
    size_t host = 0;
    if (!address_valid(*address, &host)) {
        return; /* reported by its own rule */
    }
    if (host == 0) {
        replace(address, nd_xasprintf("127.0.0.1%s", *address));
    } else if (!nd_host_is_loopback(*address, host)) {
        nd_problem(problems, "%s is \"%s\" and --dev listens on loopback only", key, *address);
    }
}

static void apply_dev(struct nd_launch *launch, struct nd_buf *problems)
{
    struct nd_settings *s = &launch->settings;
    if (given(launch, "security.enabled") && s->security_enabled) {
        nd_problem(problems,
                   "security.enabled is true and --dev turns it off; leave one of them out");
    }
    s->security_enabled = false;
    if (!given(launch, "log.format")) {
        replace(&s->log_format, nd_xstrdup("text"));
    }
    launch->temporary_data = !given(launch, "storage.data_dir");
    dev_address("grpc.addr", &s->grpc_addr, problems);
    dev_address("http.addr", &s->http_addr, problems);
    dev_address("cluster.addr", &s->cluster_addr, problems);
    dev_address("http.metrics_addr", &s->http_metrics_addr, problems); /* "": none */
}

static void check_address(const char *key, const char *value, struct nd_buf *problems)
{
    size_t host;
    if (value[0] == '\0') {
        nd_problem(problems, "%s must not be empty", key);
    } else if (!address_valid(value, &host)) {
        nd_problem(problems, "%s must be host:port or :port (got \"%.200s\")", key, value);
    }
}

static void check_addresses(const struct nd_settings *s, struct nd_buf *problems)
{
    check_address("grpc.addr", s->grpc_addr, problems);
    check_address("http.addr", s->http_addr, problems);
    check_address("cluster.addr", s->cluster_addr, problems);
    if (s->http_metrics_addr[0] != '\0') {
        check_address("http.metrics_addr", s->http_metrics_addr, problems);
    }
    const char *const names[] = {"http.addr", "http.metrics_addr", "cluster.addr", "grpc.addr"};
    const char *const values[] = {s->http_addr, s->http_metrics_addr, s->cluster_addr,
                                  s->grpc_addr};
    for (size_t i = 0; i < ND_ARRAY_SIZE(values); i++) {
        for (size_t j = i + 1; j < ND_ARRAY_SIZE(values); j++) {
            size_t size = strlen(values[i]);
            bool any_port = size >= 2 && strcmp(values[i] + size - 2, ":0") == 0;
            if (size > 0 && !any_port && strcmp(values[i], values[j]) == 0) {
                nd_problem(problems, "%s and %s must differ (both \"%s\")", names[i], names[j],
                           values[i]);
            }
        }
    }
    struct sockaddr_un address;
    if (strlen(s->grpc_socket) >= sizeof address.sun_path) {
        nd_problem(problems, "grpc.socket must be a path below %zu bytes", sizeof address.sun_path);
    }
}

static void check_numbers(const struct nd_settings *s, struct nd_buf *problems)
{
    if (s->http_write_timeout <= s->http_max_consume_wait) {
        nd_problem(problems, "http.write_timeout must be above http.max_consume_wait");
    }
    if (s->http_shutdown_grace < s->http_max_consume_wait) {
        nd_problem(problems, "http.shutdown_grace must be at least http.max_consume_wait");
    }
    if (s->topic_default_partitions > s->topic_max_partitions) {
        nd_problem(problems, "topic.default_partitions must be at most topic.max_partitions");
    }
    if (s->topic_default_retention_age_ms != 0 &&
        s->topic_default_visibility_timeout_ms > s->topic_default_retention_age_ms) {
        nd_problem(problems, "topic.default_visibility_timeout_ms must be at most "
                             "topic.default_retention_age_ms");
    }
    if (s->storage_wal_file_bytes % 4096 != 0) {
        nd_problem(problems, "storage.wal_file_bytes must be a multiple of 4096");
    }
    if (s->storage_data_dir[0] == '\0') {
        nd_problem(problems, "storage.data_dir must not be empty");
    }
    if (strlen(s->storage_data_dir) > 512) {
        nd_problem(problems, "storage.data_dir must be at most 512 bytes");
    }
    if (s->cluster_node_id[0] == '\0' || strlen(s->cluster_node_id) > 255) {
        nd_problem(problems, "cluster.node_id must be 1 to 255 bytes");
    }
}

static void check_pair(const char *names, const char *a, const char *b, struct nd_buf *problems)
{
    if ((a[0] == '\0') != (b[0] == '\0')) {
        nd_problem(problems, "%s must be set together", names);
    }
}

/* Takes the next "id@host:port" of a list apart; false at the end. */
static bool next_peer(const char **at, char *id, size_t id_size, char *address, size_t address_size)
{
    size_t length = strcspn(*at, ",");
    if (length == 0) {
        return false;
    }
    const char *sign = memchr(*at, '@', length);
    size_t id_length = sign == NULL ? length : (size_t)(sign - *at);
    snprintf(id, id_size, "%.*s", (int)id_length, *at);
    snprintf(address, address_size, "%.*s", sign == NULL ? 0 : (int)(length - id_length - 1),
             sign == NULL ? "" : sign + 1);
    *at += length + ((*at)[length] == ',');
    return true;
}

static void check_peers(const struct nd_settings *s, struct nd_buf *problems)
{
    char id[256], address[512], other_id[256], other_address[512];
    uint32_t count = 0;
    bool self = false;
    const char *at = s->cluster_peers;
    while (next_peer(&at, id, sizeof id, address, sizeof address)) {
        size_t host;
        count++;
        self = self || strcmp(id, s->cluster_node_id) == 0;
        if (id[0] == '\0' || !address_valid(address, &host) || host == 0) {
            nd_problem(problems, "cluster.peers: \"%s%s%s\" must be id@host:port", id,
                       address[0] == '\0' ? "" : "@", address);
        }
        const char *rest = at;
        while (next_peer(&rest, other_id, sizeof other_id, other_address, sizeof other_address)) {
            if (strcmp(id, other_id) == 0 || strcmp(address, other_address) == 0) {
                nd_problem(problems,
                           "cluster.peers: \"%s@%s\" and \"%s@%s\" share an id or an address", id,
                           address, other_id, other_address);
            }
        }
    }
    if (count > 0 && count < 3) {
        nd_problem(problems, "cluster.peers must name at least 3 members (got %u)", count);
    }
    if (count > 0 && !self) {
        nd_problem(problems, "cluster.peers does not contain this node, \"%s\"",
                   s->cluster_node_id);
    }
}

/* What this build cannot do must not be asked of it, rather than be silently left undone. */
static void check_build(const struct nd_launch *launch, struct nd_buf *problems,
                        struct nd_buf *warnings)
{
    const struct nd_settings *s = &launch->settings;
    for (size_t i = 0; i < nd_settings_count; i++) {
        const struct nd_setting *setting = &nd_settings_table[i];
        if (launch->sources[i] == NULL) {
            continue;
        }
        if (setting->use == ND_SETTING_IGNORED) {
            nd_buf_printf(warnings, "%s%s", warnings->size == 0 ? "" : ", ", setting->key);
        }
        if (setting->use == ND_SETTING_REFUSED) {
            char *text = nd_setting_show(setting, s);
            if (text[0] != '\0') {
                nd_problem(problems,
                           "%s (%s) is set, and this build cannot act on it: leave it out",
                           setting->key, launch->sources[i]);
            }
            nd_free(text);
        }
    }
    if (warnings->size > 0) {
        nd_buf_put_text(warnings, ": accepted and ignored, they have no effect");
    }
}

void nd_launch_check(struct nd_launch *launch, const char *host_name, struct nd_buf *problems,
                     struct nd_buf *warnings)
{
    struct nd_settings *s = &launch->settings;
    if (s->cluster_node_id[0] == '\0' && !given(launch, "cluster.node_id")) {
        replace(&s->cluster_node_id, nd_xstrdup(host_name));
    }
    if (launch->dev) {
        apply_dev(launch, problems);
    }
    if (!given(launch, "http.metrics_unauthenticated")) {
        s->http_metrics_unauthenticated = strcmp(s->compat, "1.2") == 0;
    }
    check_addresses(s, problems);
    check_numbers(s, problems);
    check_peers(s, problems);
    check_pair("grpc.tls_cert_file and grpc.tls_key_file", s->grpc_tls_cert_file,
               s->grpc_tls_key_file, problems);
    if (s->grpc_tls_client_ca_file[0] != '\0' && s->grpc_tls_cert_file[0] == '\0') {
        nd_problem(problems, "grpc.tls_client_ca_file needs grpc.tls_cert_file and "
                             "grpc.tls_key_file");
    }
    check_pair("http.tls_cert_file and http.tls_key_file", s->http_tls_cert_file,
               s->http_tls_key_file, problems);
    if (s->http_tls_client_ca_file[0] != '\0' && s->http_tls_cert_file[0] == '\0') {
        nd_problem(problems, "http.tls_client_ca_file needs http.tls_cert_file and "
                             "http.tls_key_file");
    }
    check_pair("security.cluster_tls_cert_file and security.cluster_tls_key_file",
               s->security_cluster_tls_cert_file, s->security_cluster_tls_key_file, problems);
    check_pair("security.cluster_tls_cert_file and security.cluster_tls_ca_file",
               s->security_cluster_tls_cert_file, s->security_cluster_tls_ca_file, problems);
    check_build(launch, problems, warnings);
}
