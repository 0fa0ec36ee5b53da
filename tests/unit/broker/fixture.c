#include "tests/unit/broker/fixture.h"

#include <stdio.h>
#include <string.h>

#include "storage/base/alloc.h"

int fixture_setup(void **state)
{
    struct fixture *fixture = nd_xcalloc(1, sizeof *fixture);
    struct nd_errmsg msg = {{0}};

    fixture->sim = sim_env_new(1);
    node_init(&fixture->node, fixture->sim);
    node_topic(&fixture->node, "t", 1);
    enum nd_err err = node_open(&fixture->node, &msg);
    if (err != ND_OK) {
        print_error("open: %s: %s\n", nd_err_name(err), msg.text);
        return -1;
    }
    *state = fixture;
    return 0;
}

int fixture_teardown(void **state)
{
    struct fixture *fixture = *state;

    node_discard(&fixture->node);
    node_release(&fixture->node);
    sim_env_free(fixture->sim);
    nd_free(fixture);
    return 0;
}

void fixture_restart(struct fixture *fixture)
{
    struct nd_errmsg msg = {{0}};

    node_stop(&fixture->node);
    sim_env_restart(fixture->sim);
    assert_int_equal(node_open(&fixture->node, &msg), ND_OK);
}

struct find {
    char name[256];
};

static bool find_log(void *arg, const char *name, enum nd_file_kind kind)
{
    struct find *find = arg;
    size_t size = strlen(name);

    (void)kind;
    if (size > 4 && strcmp(name + size - 4, ".log") == 0) {
        snprintf(find->name, sizeof find->name, "%s", name);
    }
    return true;
}

void fixture_segment_path(struct fixture *fixture, uint32_t topic, uint32_t partition, char *out,
                          size_t out_size)
{
    struct node *node = &fixture->node;
    struct nd_partition_id id = {.incarnation = node->topics[topic]->incarnation,
                                 .partition = partition};
    char dir[600];
    struct find find = {{0}};
    struct nd_errmsg msg;

    snprintf(id.topic, sizeof id.topic, "%s", node->topics[topic]->name);
    nd_flusher_partition_dir(node->flusher, &id, dir, sizeof dir);
    assert_int_equal(node->env->list(node->env->impl, dir, find_log, &find, &msg), ND_OK);
    assert_true(find.name[0] != '\0');
    snprintf(out, out_size, "%s/%s", dir, find.name);
}
