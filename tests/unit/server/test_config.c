#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "storage/base/alloc.h"

#include "server/config.h"
#include "server/config_value.h"
#include "tests/support/nd_test.h"

/* A launch from a file's text, an environment and flags, all given as text. */
struct fixture {
    const char *file;         /* NULL: no --config */
    const char *const *env;   /* "NAME=value"..., NULL; NULL: only security off */
    const char *const *flags; /* ..., NULL */
    struct nd_launch launch;
    struct nd_buf problems, warnings;
    char path[64];
    enum nd_err err;
};

static const char *const security_off[] = {"NARAD_SECURITY_ENABLED=false", NULL};

static const char *fake_getenv(void *arg, const char *name)
{
    const char *const *env = arg;
    size_t length = strlen(name);
    for (; *env != NULL; env++) {
        if (strncmp(*env, name, length) == 0 && (*env)[length] == '=') {
            return *env + length + 1;
        }
    }
    return NULL;
}

static void load(struct fixture *f)
{
    const char *argv[16];
    int argc = 0;
    nd_buf_init(&f->problems, 1 << 20);
    nd_buf_init(&f->warnings, 1 << 20);
    if (f->file != NULL) {
        snprintf(f->path, sizeof f->path, "/tmp/narad-config-XXXXXX");
        int file = mkstemp(f->path);
        assert_true(file >= 0);
        assert_int_equal(write(file, f->file, strlen(f->file)), (ssize_t)strlen(f->file));
        close(file);
        argv[argc++] = "--config";
        argv[argc++] = f->path;
    }
    for (const char *const *flag = f->flags; flag != NULL && *flag != NULL; flag++) {
        argv[argc++] = *flag;
    }
    const char *const *env = f->env == NULL ? security_off : f->env;
    struct nd_launch_input input = {argc, argv, fake_getenv, (void *)(uintptr_t)env, "host-1"};
    f->err = nd_launch_load(&f->launch, &input, &f->problems, &f->warnings);
    nd_buf_put_u8(&f->problems, '\0');
    nd_buf_put_u8(&f->warnings, '\0');
    if (f->file != NULL) {
        unlink(f->path);
    }
}

static void unload(struct fixture *f)
{
    nd_launch_release(&f->launch);
    nd_buf_release(&f->problems);
    nd_buf_release(&f->warnings);
}

static const char *problems(const struct fixture *f)
{
    return (const char *)f->problems.data;
}

/* The problem text must contain `part`. */
static void expect_problem(const struct fixture *f, const char *part)
{
    if (f->err != ND_ERR_INVALID_ARGUMENT || strstr(problems(f), part) == NULL ||
        strncmp(problems(f), "config: ", 8) != 0) {
        fail_msg("expected \"config: ...%s...\", got \"%s\"", part, problems(f));
    }
}

static void expect_ok(const struct fixture *f)
{
    if (f->err != ND_OK) {
        fail_msg("refused: %s", problems(f));
    }
}

static void config_load__takes_defaults_without_anything(void **state)
{
    (void)state;
    struct fixture f = {0};

    load(&f);

    expect_ok(&f);
    assert_string_equal(f.launch.settings.grpc_addr, ":7941");
    assert_string_equal(f.launch.settings.cluster_node_id, "host-1");
    assert_string_equal(f.launch.settings.storage_codec, "zstd");
    assert_int_equal(f.launch.settings.topic_default_retention_age_ms, 604800000);
    assert_int_equal(f.launch.settings.http_idle_timeout, 60000);
    assert_false(f.launch.temporary_data);
    unload(&f);
}

static void config_load__lets_file_give_way_to_variable_and_variable_to_flag(void **state)
{
    (void)state;
    const char *const env[] = {"NARAD_SECURITY_ENABLED=false", "NARAD_LOG_LEVEL=warn",
                               "NARAD_GRPC_ADDR=:2", NULL};
    const char *const flags[] = {"--grpc-addr", ":3", NULL};
    struct fixture f = {
        .file = "{\"log\":{\"level\":\"error\",\"format\":\"text\"},\"grpc\":{\"addr\":\":1\"}}",
        .env = env,
        .flags = flags};

    load(&f);

    expect_ok(&f);
    assert_string_equal(f.launch.settings.grpc_addr, ":3");
    assert_string_equal(f.launch.settings.log_level, "warn");
    assert_string_equal(f.launch.settings.log_format, "text");
    unload(&f);
}

static void config_load__lets_addr_win_over_port_in_any_order(void **state)
{
    (void)state;
    const char *const first[] = {"--addr", "h:1", "--port", "9", "--cluster-port=8", NULL};
    const char *const last[] = {"--port=9", "--addr=h:1", NULL};
    const char *const alone[] = {"--port", "9", NULL};
    struct fixture f = {.flags = first}, g = {.flags = last}, h = {.flags = alone};

    load(&f);
    load(&g);
    load(&h);

    expect_ok(&f);
    assert_string_equal(f.launch.settings.http_addr, "h:1");
    assert_string_equal(f.launch.settings.cluster_addr, ":8");
    assert_string_equal(g.launch.settings.http_addr, "h:1");
    assert_string_equal(h.launch.settings.http_addr, ":9");
    unload(&f);
    unload(&g);
    unload(&h);
}

static const struct {
    const char *file, *part;
} file_refusals[] = {
    {"", "line"},
    {"[]", "must hold one JSON object"},
    {"{} {}", "end of file expected"},
    {"{\"log\":{\"level\":\"info\"}} x", "end of file expected"},
    {"{\"log\":{\"level\":\"info\",\"level\":\"warn\"}}", "duplicate"},
    {"{\"log\":{},\"log\":{}}", "duplicate"},
    {"{\"nonsense\":1}", "unknown setting \"nonsense\""},
    {"{\"log.level\":\"info\"}", "unknown setting \"log.level\""},
    {"{\"http\":{\"nonsense\":1}}", "unknown setting \"http.nonsense\""},
    {"{\"http\":7}", "\"http\" (file) must be an object"},
    {"{\"storage\":{\"segment_bytes\":1}}",
     "storage.segment_bytes is an internal setting and cannot be configured"},
    {"{\"http\":{\"addr\":7}}", "http.addr (file) must be a string"},
    {"{\"http\":{\"read_timeout\":7}}", "http.read_timeout (file) must be a string such as"},
    {"{\"http\":{\"read_timeout\":\"7\"}}", "must be a duration"},
    {"{\"http\":{\"read_timeout\":\"0s\"}}", "must be at least"},
    {"{\"http\":{\"read_timeout\":null}}", "http.read_timeout (file) must be"},
    {"{\"http\":{\"metrics_unauthenticated\":\"true\"}}", "must be true or false"},
    {"{\"http\":{\"max_header_bytes\":4095}}", "must be between 4096 and 1048576 (got \"4095\")"},
    {"{\"http\":{\"max_header_bytes\":4096.5}}", "must be a whole number"},
    {"{\"http\":{\"max_connections\":-1}}", "must be a whole number"},
    {"{\"cluster\":{\"peers\":\"a@b:1\"}}", "must be an array of strings"},
    {"{\"cluster\":{\"peers\":[1]}}", "must be an array of strings"},
    {"{\"cluster\":{\"raft_snapshot_interval\":\"4ms\"}}", "must be at least 5ms"},
    {"{\"storage\":{\"codec\":\"lz4\"}}", "must be one of: none zstd (got \"lz4\")"},
    {"{\"storage\":{\"codec\":\"none zstd\"}}", "must be one of"},
    {"{\"storage\":{\"compression_level\":\"fast\"}}",
     "must be one of: fastest default better best"},
    {"{\"storage\":{\"idle_log_eviction_ms\":59999}}", "must be 0 or at least 60000"},
    {"{\"storage\":{\"wal_file_bytes\":1000000}}", "must be a multiple of 4096"},
    {"{\"storage\":{\"wal_file_bytes\":4096}}", "must be between 262144"},
    {"{\"storage\":{\"consumer_offset_commit_interval_ms\":9}}", "between 10 and 60000"},
    {"{\"topic\":{\"default_partitions\":2}}", "must be between 3"},
    {"{\"topic\":{\"max_partitions\":4097}}",
     "topic.max_partitions (file) must be between 1 and 4096 (got \"4097\")"},
    {"{\"topic\":{\"default_partitions\":200}}", "at most topic.max_partitions"},
    {"{\"topic\":{\"default_retention_age_ms\":3599999}}", "must be 0 or at least 3600000"},
    {"{\"topic\":{\"default_visibility_timeout_ms\":0}}", "between 1 and 43200000"},
    {"{\"topic\":{\"default_visibility_timeout_ms\":43200000,\"default_retention_age_ms\":3600000}"
     "}",
     "must be at most topic.default_retention_age_ms"},
    {"{\"topic\":{\"default_max_in_flight_per_partition\":0}}", "between 1 and 1000000"},
    {"{\"fanout\":{\"max_batch_records\":0}}", "between 1"},
    {"{\"compat\":\"2\"}", "compat (file) must be one of: 1.2 3"},
    {"{\"http\":{\"write_timeout\":\"10s\"}}", "http.write_timeout must be above"},
    {"{\"http\":{\"shutdown_grace\":\"9s\"}}", "http.shutdown_grace must be at least"},
    {"{\"http\":{\"shutdown_grace\":\"1200h\"}}",
     "http.shutdown_grace (file) must be between 1ms and 24h0m0s (got \"1200h\")"},
    {"{\"http\":{\"addr\":\"\"}}", "http.addr must not be empty"},
    {"{\"http\":{\"addr\":\"host\"}}", "http.addr must be host:port"},
    {"{\"http\":{\"addr\":\":65536\"}}", "http.addr must be host:port"},
    {"{\"http\":{\"addr\":\"::1:7942\"}}", "http.addr must be host:port"},
    {"{\"http\":{\"addr\":\":7943\"}}", "http.addr and cluster.addr must differ"},
    {"{\"grpc\":{\"addr\":\":7942\"}}", "http.addr and grpc.addr must differ"},
    {"{\"storage\":{\"data_dir\":\"\"}}", "storage.data_dir must not be empty"},
    {"{\"grpc\":{\"tls_cert_file\":\"c\"}}",
     "grpc.tls_cert_file and grpc.tls_key_file must be set"},
    {"{\"remotes\":{\"allowed_hosts\":[\"h\"]}}",
     "remotes.allowed_hosts (file) is set, and this build cannot act on it"},
    {"{\"grpc\":{\"tls_client_ca_file\":\"c\"}}",
     "grpc.tls_client_ca_file needs grpc.tls_cert_file and grpc.tls_key_file"},
    {"{\"security\":{\"cluster_tls_ca_file\":\"c\"}}", "must be set together"},
    {"{\"cluster\":{\"peers\":[\"host-1@a:1\"]}}", "must name at least 3 members (got 1)"},
    {"{\"cluster\":{\"peers\":[\"a@a:1\",\"b@b:1\",\"c@c:1\"]}}", "does not contain this node"},
    {"{\"cluster\":{\"peers\":[\"host-1@a:1\",\"b@b:1\",\"b@c:1\"]}}", "share an id or an address"},
    {"{\"cluster\":{\"peers\":[\"host-1@a:1\",\"b@b:1\",\"c@b:1\"]}}", "share an id or an address"},
    {"{\"cluster\":{\"peers\":[\"host-1@a:1\",\"b\",\"c@c:1\"]}}", "must be id@host:port"},
    {"{\"cluster\":{\"peers\":[\"host-1@a:1\",\"b@b:1\",\"c@c:1\"]}}",
     "cluster.peers (file) is set, and this build cannot act on it"},
    {"{\"remotes\":{\"allowed_hosts\":[\"x\"]}}", "this build cannot act on it"},
};

static void config_load__refuses_what_a_file_must_not_say(void **state)
{
    (void)state;
    for (size_t i = 0; i < ND_ARRAY_SIZE(file_refusals); i++) {
        const char *const env[] = {NULL};
        struct fixture f = {.file = file_refusals[i].file, .env = env};
        load(&f);
        expect_problem(&f, file_refusals[i].part);
        unload(&f);
    }
}

static void config_load__refuses_a_missing_or_large_file(void **state)
{
    (void)state;
    const char *const flags[] = {"--config", "/nonexistent/narad.json", NULL};
    struct fixture f = {.flags = flags};
    char *large = nd_xmalloc((1 << 20) + 2);
    memset(large, ' ', (1 << 20) + 1);
    large[(1 << 20) + 1] = '\0';
    struct fixture g = {.file = large};

    load(&f);
    load(&g);

    expect_problem(&f, "/nonexistent/narad.json: No such file");
    expect_problem(&g, "larger than 1 MiB");
    unload(&f);
    unload(&g);
    nd_free(large);
}

static const struct {
    const char *variable, *part;
} env_refusals[] = {
    {"NARAD_HTTP_ADDR=", "http.addr must not be empty"},
    {"NARAD_HTTP_READ_TIMEOUT=soon",
     "http.read_timeout (NARAD_HTTP_READ_TIMEOUT) must be a duration"},
    {"NARAD_HTTP_READ_TIMEOUT=1000", "must be a duration"},
    {"NARAD_HTTP_READ_TIMEOUT=-1s", "must be a duration"},
    {"NARAD_HTTP_READ_TIMEOUT=1ns", "must be a duration"},
    {"NARAD_TOPIC_MAX_PARTITIONS=many", "must be a whole number (got \"many\")"},
    {"NARAD_TOPIC_MAX_PARTITIONS=99999999999999999999", "must be a whole number"},
    {"NARAD_TOPIC_MAX_PARTITIONS=", "must be a whole number"},
    {"NARAD_HTTP_METRICS_UNAUTHENTICATED=yes", "must be true or false"},
    {"NARAD_LOG_LEVEL=warning", "must be one of: debug info warn error"},
    {"NARAD_NODE_ID=", "cluster.node_id must be 1 to 255 bytes"},
    {"NARAD_CLUSTER_PEERS=a@b:1,,", "at least 3 members (got 1)"},
    {"NARAD_COMPAT=2", "must be one of: 1.2 3"},
    {"NARAD_LIMITS_PRODUCE_BYTES_PER_SECOND=-1", "must be a whole number"},
};

static void config_load__refuses_variables_by_name(void **state)
{
    (void)state;
    for (size_t i = 0; i < ND_ARRAY_SIZE(env_refusals); i++) {
        const char *const env[] = {env_refusals[i].variable, NULL};
        struct fixture f = {.env = env};
        load(&f);
        expect_problem(&f, env_refusals[i].part);
        unload(&f);
    }
}

static const struct {
    const char *flags[5], *part;
} flag_refusals[] = {
    {{"--nonsense", NULL}, "unknown flag --nonsense"},
    {{"--nonsense=1", NULL}, "unknown flag --nonsense"},
    {{"stray", NULL}, "unexpected argument \"stray\""},
    {{"--grpc-addr", NULL}, "--grpc-addr needs a value"},
    {{"--grpc-addr", "--dev", NULL}, "--grpc-addr needs a value"},
    {{"--config", NULL}, "--config needs a value"},
    {{"--ready-file=", NULL}, "--ready-file needs a value"},
    {{"--port", NULL}, "--port needs a value"},
    {{"--port", "x", NULL}, "--port must be a port between 0 and 65535 (got \"x\")"},
    {{"--port", "70000", NULL}, "--port must be a port between 0 and 65535 (got \"70000\")"},
    {{"--log-format", "xml", NULL}, "must be one of: json text"},
    {{"--dev", "--grpc-addr", "0.0.0.0:1", NULL}, "--dev listens on loopback only"},
    {{"--dev", "--addr=10.0.0.1:1", NULL}, "http.addr is \"10.0.0.1:1\" and --dev"},
    {{"--dev", "--grpc-addr", "127.0.0.1.example.com:1", NULL}, "--dev listens on loopback only"},
    {{"--dev", "--grpc-addr", "127.1:1", NULL}, "--dev listens on loopback only"},
};

static void config_load__refuses_flags(void **state)
{
    (void)state;
    for (size_t i = 0; i < ND_ARRAY_SIZE(flag_refusals); i++) {
        struct fixture f = {.flags = flag_refusals[i].flags};
        load(&f);
        expect_problem(&f, flag_refusals[i].part);
        unload(&f);
    }
}

static void config_load__tells_all_problems_at_once(void **state)
{
    (void)state;
    const char *const env[] = {"NARAD_LOG_LEVEL=loud", NULL};
    const char *const flags[] = {"--nonsense", NULL};
    struct fixture f = {.file =
                            "{\"http\":{\"addr\":\"\",\"x\":1},\"storage\":{\"codec\":\"lz4\"}}",
                        .env = env,
                        .flags = flags};

    load(&f);

    expect_problem(&f, "http.x");
    expect_problem(&f, "storage.codec");
    expect_problem(&f, "log.level (NARAD_LOG_LEVEL)");
    expect_problem(&f, "--nonsense");
    expect_problem(&f, "http.addr must not be empty");
    assert_null(strstr(problems(&f) + 8, "config: "));
    size_t parts = 0;
    for (const char *at = problems(&f); (at = strstr(at, "; ")) != NULL; at++) {
        parts++;
    }
    assert_int_equal(parts, 4);
    unload(&f);
}

static void config_load__warns_once_about_ignored_keys(void **state)
{
    (void)state;
    struct fixture f = {.file = "{\"storage\":{\"ingress_wal_prealloc\":true,"
                                "\"consumer_offset_commit_interval_ms\":100},"
                                "\"fanout\":{\"linger_ms\":3}}"};
    struct fixture quiet = {0};

    load(&f);
    load(&quiet);

    expect_ok(&f);
    const char *text = (const char *)f.warnings.data;
    assert_non_null(strstr(text, "storage.ingress_wal_prealloc"));
    assert_non_null(strstr(text, "storage.consumer_offset_commit_interval_ms"));
    assert_non_null(strstr(text, "fanout.linger_ms"));
    assert_null(strchr(text, '\n'));
    assert_string_equal((const char *)quiet.warnings.data, "");
    unload(&f);
    unload(&quiet);
}

static void config_load__keeps_dev_on_loopback_with_a_temporary_directory(void **state)
{
    (void)state;
    const char *const none[] = {NULL};
    const char *const flags[] = {"--dev", "--grpc-addr", ":0", NULL};
    const char *const with_dir[] = {"--dev", "--data-dir", "d", "--log-format", "json", NULL};
    const char *const secure[] = {"NARAD_SECURITY_ENABLED=true", NULL};
    struct fixture f = {.env = none, .flags = flags}, g = {.env = none, .flags = with_dir};
    struct fixture h = {.env = secure, .flags = flags};

    load(&f);
    load(&g);
    load(&h);

    expect_ok(&f);
    assert_string_equal(f.launch.settings.grpc_addr, "127.0.0.1:0");
    assert_string_equal(f.launch.settings.http_addr, "127.0.0.1:7942");
    assert_string_equal(f.launch.settings.log_format, "text");
    assert_false(f.launch.settings.security_enabled);
    assert_true(f.launch.temporary_data);
    expect_ok(&g);
    assert_false(g.launch.temporary_data);
    assert_string_equal(g.launch.settings.log_format, "json");
    expect_problem(&h, "--dev turns it off");
    unload(&f);
    unload(&g);
    unload(&h);
}

static void config_load__metrics_are_open_where_nothing_else_is_said(void **state)
{
    (void)state;
    static const struct {
        const char *const env[3];
        bool open;
    } cases[] = {
        {{NULL}, true},
        {{"NARAD_COMPAT=3", NULL}, false},
        {{"NARAD_COMPAT=3", "NARAD_HTTP_METRICS_UNAUTHENTICATED=true", NULL}, true},
        {{"NARAD_HTTP_METRICS_UNAUTHENTICATED=false", NULL}, false},
    };
    for (size_t i = 0; i < ND_ARRAY_SIZE(cases); i++) {
        struct fixture f = {.env = cases[i].env};
        load(&f);
        expect_ok(&f);
        assert_true(f.launch.settings.security_enabled);
        assert_int_equal(f.launch.settings.http_metrics_unauthenticated, cases[i].open);
        unload(&f);
    }
}

/* The whole file is what an operator starts from: it must load, and say every key with its default.
 */
static void config_example__says_every_key_with_its_default(void **state)
{
    (void)state;
    const char *const none[] = {NULL};
    const char *const flags[] = {"--dev", "--config", ND_EXAMPLE_CONFIG, NULL};
    struct fixture f = {.env = none, .flags = flags};
    const char *const off_flags[] = {"--config", ND_EXAMPLE_CONFIG, NULL};
    struct fixture off = {.env = NULL, .flags = off_flags};
    struct nd_settings standard;
    nd_settings_init(&standard);

    load(&f);
    load(&off);

    assert_non_null(strstr(problems(&f), "security.enabled is true"));
    expect_ok(&off);
    for (size_t i = 0; i < nd_settings_count; i++) {
        const struct nd_setting *setting = &nd_settings_table[i];
        char *given = nd_setting_show(setting, &off.launch.settings);
        char *wanted = nd_setting_show(setting, &standard);
        bool by_env = strcmp(setting->key, "security.enabled") == 0;
        bool host = strcmp(setting->key, "cluster.node_id") == 0;
        assert_string_equal(off.launch.sources[i], by_env ? "NARAD_SECURITY_ENABLED"
                                                   : host ? "default"
                                                          : "file");
        if (!by_env && !host) {
            assert_string_equal(given, wanted);
        }
        nd_free(given);
        nd_free(wanted);
    }
    nd_settings_release(&standard);
    unload(&f);
    unload(&off);
}

static void duration_parse__takes_units_and_sums(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        uint64_t ms;
    } good[] = {{"0", 0},           {"0s", 0},         {"10s", 10000},     {"500ms", 500},
                {"1h30m", 5400000}, {"1.5h", 5400000}, {"1000us", 1},      {"1000000ns", 1},
                {"2m0.5s", 120500}, {".5s", 500},      {"1h0m1s", 3601000}};
    static const char *const bad[] = {"",    "10",       "s",   "10 s",         "-1s", "1d",
                                      "1ns", "1.0001ms", "1s2", "99999999999h", "10S", "."};
    for (size_t i = 0; i < ND_ARRAY_SIZE(good); i++) {
        uint64_t ms = 77;
        assert_true(nd_duration_parse(good[i].text, &ms));
        assert_int_equal(ms, good[i].ms);
    }
    for (size_t i = 0; i < ND_ARRAY_SIZE(bad); i++) {
        uint64_t ms;
        if (nd_duration_parse(bad[i], &ms)) {
            fail_msg("\"%s\" was taken as %llu ms", bad[i], (unsigned long long)ms);
        }
    }
}

static void settings_table__has_no_key_variable_or_flag_twice(void **state)
{
    (void)state;
    for (size_t i = 0; i < nd_settings_count; i++) {
        const struct nd_setting *a = &nd_settings_table[i];
        for (size_t j = i + 1; j < nd_settings_count; j++) {
            const struct nd_setting *b = &nd_settings_table[j];
            assert_string_not_equal(a->key, b->key);
            assert_int_not_equal(a->offset, b->offset);
            assert_true(a->env == NULL || b->env == NULL || strcmp(a->env, b->env) != 0);
            assert_true(a->flag == NULL || b->flag == NULL || strcmp(a->flag, b->flag) != 0);
        }
    }
}

static void settings_help__names_every_key_and_what_is_allowed(void **state)
{
    (void)state;
    struct nd_buf text;
    nd_buf_init(&text, 1 << 20);

    nd_settings_help(&text);
    nd_buf_put_u8(&text, '\0');

    for (size_t i = 0; i < nd_settings_count; i++) {
        assert_non_null(strstr((const char *)text.data, nd_settings_table[i].key));
    }
    assert_non_null(strstr((const char *)text.data, "default 3; between 3 and 4096\n"));
    assert_non_null(strstr((const char *)text.data, "default 1m0s; at least 1ms\n"));
    assert_non_null(strstr((const char *)text.data, "default json; one of: json text\n"));
    nd_buf_release(&text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(config_load__takes_defaults_without_anything),
        cmocka_unit_test(config_load__lets_file_give_way_to_variable_and_variable_to_flag),
        cmocka_unit_test(config_load__lets_addr_win_over_port_in_any_order),
        cmocka_unit_test(config_load__refuses_what_a_file_must_not_say),
        cmocka_unit_test(config_load__refuses_a_missing_or_large_file),
        cmocka_unit_test(config_load__refuses_variables_by_name),
        cmocka_unit_test(config_load__refuses_flags),
        cmocka_unit_test(config_load__tells_all_problems_at_once),
        cmocka_unit_test(config_load__warns_once_about_ignored_keys),
        cmocka_unit_test(config_load__keeps_dev_on_loopback_with_a_temporary_directory),
        cmocka_unit_test(config_load__metrics_are_open_where_nothing_else_is_said),
        cmocka_unit_test(config_example__says_every_key_with_its_default),
        cmocka_unit_test(duration_parse__takes_units_and_sums),
        cmocka_unit_test(settings_table__has_no_key_variable_or_flag_twice),
        cmocka_unit_test(settings_help__names_every_key_and_what_is_allowed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
