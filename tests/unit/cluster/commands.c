#include "tests/unit/cluster/commands.h"

#include <stdio.h>

#include "storage/base/alloc.h"

enum { PROPOSER = 77 };

static struct nd_command command_of(uint64_t sequence, enum nd_command_kind kind)
{
    return (struct nd_command){
        .proposer = PROPOSER, .sequence = sequence, .open_from = sequence, .kind = kind};
}

struct nd_command command_create(uint64_t sequence, const char *name, uint32_t partitions)
{
    struct nd_command command = command_of(sequence, ND_COMMAND_TOPIC_CREATE);
    struct nd_topic_create *request = &command.topic_create.request;

    snprintf(request->name, sizeof request->name, "%s", name);
    snprintf(request->owner, sizeof request->owner, "ann");
    request->partitions = partitions;
    request->retention_ms = 3600000;
    request->visibility_timeout_ms = 30000;
    request->max_in_flight = 10;
    request->max_acked_ahead = 20;
    command.topic_create.incarnation = 1000 + sequence;
    command.topic_create.created_at_s = 1767225600;
    return command;
}

struct nd_command command_alter_partitions(uint64_t sequence, const char *name, uint32_t partitions)
{
    struct nd_command command = command_of(sequence, ND_COMMAND_TOPIC_ALTER);
    snprintf(command.topic_alter.name, sizeof command.topic_alter.name, "%s", name);
    command.topic_alter.partitions = partitions;
    return command;
}

struct nd_command command_delete(uint64_t sequence, const char *name)
{
    struct nd_command command = command_of(sequence, ND_COMMAND_TOPIC_DELETE);
    snprintf(command.topic_delete, sizeof command.topic_delete, "%s", name);
    return command;
}

struct nd_command command_register(uint64_t sequence, uint64_t member, const char *node_id)
{
    struct nd_command command = command_of(sequence, ND_COMMAND_MEMBER_REGISTER);
    struct nd_member_register *request = &command.member_register;

    request->member = member;
    snprintf(request->node_id, sizeof request->node_id, "%s", node_id);
    snprintf(request->address, sizeof request->address, "10.0.0.%u:7943", (unsigned)member);
    return command;
}

/* --- users --- */

struct nd_user *user_of(const char *name, const char *hash, const char *const *patterns,
                        uint32_t count)
{
    struct nd_grant *grants = nd_xcalloc(count + 1, sizeof grants[0]);
    char **lent = nd_xcalloc(count + 1, sizeof lent[0]);

    for (uint32_t i = 0; i < count; i++) {
        grants[i].action = patterns[i] == NULL ? ND_ACTION_ADMIN : (enum nd_action)(i % 3);
        grants[i].patterns_count = patterns[i] == NULL ? 0 : 1;
        grants[i].patterns = &lent[i];
        lent[i] = (char *)(uintptr_t)patterns[i]; /* only read */
    }
    struct nd_user *user = nd_user_new(name, grants, count);
    snprintf(user->hash, sizeof user->hash, "%s", hash);
    nd_free(lent);
    nd_free(grants);
    return user;
}

static struct nd_command command_user(uint64_t sequence, enum nd_command_kind kind,
                                      struct nd_user *user)
{
    struct nd_command command = command_of(sequence, kind);

    command.user = user;
    user->updated_at_ms = 1767225600000 + (int64_t)sequence;
    return command;
}

struct nd_command command_user_create(uint64_t sequence, const char *name, const char *pattern)
{
    return command_user(sequence, ND_COMMAND_USER_CREATE,
                        user_of(name, "$2b$10$first", &pattern, pattern == NULL ? 0 : 1));
}

struct nd_command command_user_seed_root(uint64_t sequence, const char *hash)
{
    return command_user(sequence, ND_COMMAND_USER_SEED_ROOT, user_of("", hash, NULL, 0));
}

struct nd_command command_user_set_grants(uint64_t sequence, const char *name, const char *pattern)
{
    return command_user(sequence, ND_COMMAND_USER_SET_GRANTS,
                        user_of(name, "", &pattern, pattern == NULL ? 0 : 1));
}

struct nd_command command_user_set_password(uint64_t sequence, const char *name, const char *hash)
{
    return command_user(sequence, ND_COMMAND_USER_SET_PASSWORD, user_of(name, hash, NULL, 0));
}

struct nd_command command_user_delete(uint64_t sequence, const char *name)
{
    return command_user(sequence, ND_COMMAND_USER_DELETE, user_of(name, "", NULL, 0));
}

struct nd_command command_again(const struct nd_command *command)
{
    if (nd_command_is_of_user(command->kind)) {
        (void)nd_user_ref(command->user);
    }
    return *command;
}

/* --- random logs --- */

/* Mostly what is allowed. */
static struct nd_user *user_random(uint64_t *rand)
{
    static const char *const names[] = {"admin", "ann", "bob", "eve", "a", "z-9", "a b", ".."};
    static const char *const patterns[] = {"orders", "orders-*", "*", NULL, "a.b_c-9*"};
    const char *chosen[4];
    char hash[32];
    uint32_t count = (uint32_t)nd_rand_below(rand, ND_ARRAY_SIZE(chosen) + 1);

    for (uint32_t i = 0; i < count; i++) {
        chosen[i] = patterns[nd_rand_below(rand, ND_ARRAY_SIZE(patterns))];
    }
    if (count > 0 && nd_rand_below(rand, 10) == 0) {
        chosen[0] = "a*b";
    }
    snprintf(hash, sizeof hash, "$2b$10$%u", (unsigned)nd_rand_below(rand, 1000));
    return user_of(names[nd_rand_below(rand, ND_ARRAY_SIZE(names))], hash, chosen, count);
}

static struct nd_command user_next(uint64_t *rand)
{
    static const enum nd_command_kind kinds[] = {
        ND_COMMAND_USER_CREATE,     ND_COMMAND_USER_CREATE,       ND_COMMAND_USER_DELETE,
        ND_COMMAND_USER_SEED_ROOT,  ND_COMMAND_USER_SET_GRANTS,   ND_COMMAND_USER_SET_GRANTS,
        ND_COMMAND_USER_SET_GRANTS, ND_COMMAND_USER_SET_PASSWORD, ND_COMMAND_USER_SET_PASSWORD,
        ND_COMMAND_USER_DELETE,
    };
    enum nd_command_kind kind = kinds[nd_rand_below(rand, ND_ARRAY_SIZE(kinds))];
    struct nd_command command = command_user(0, kind, user_random(rand));
    command.user->root = nd_rand_below(rand, 4) == 0; /* says nothing */
    command.user->updated_at_ms = (int64_t)nd_rand(rand);
    return command;
}

static struct nd_command any_next(uint64_t *rand)
{
    char name[32];
    struct nd_command command;

    snprintf(name, sizeof name, "topic-%u", (unsigned)nd_rand_below(rand, 40));
    uint64_t dice = nd_rand_below(rand, 100);
    if (dice < 35) {
        command = command_create(0, name, (uint32_t)nd_rand_below(rand, 6));
        command.topic_create.incarnation = nd_rand(rand);
    } else if (dice < 55) {
        command = command_alter_partitions(0, name, (uint32_t)nd_rand_below(rand, 9));
        command.topic_alter.has_retention = dice % 2 == 0;
        command.topic_alter.retention_ms = dice;
    } else if (dice < 70) {
        command = command_delete(0, name);
    } else if (dice < 77) {
        snprintf(name, sizeof name, "node-%u", (unsigned)nd_rand_below(rand, 4));
        command = command_register(0, 1 + nd_rand_below(rand, 5), name);
    } else if (dice < 97) {
        command = user_next(rand);
    } else {
        command = command_of(0, ND_COMMAND_NOOP);
    }
    return command;
}

static struct nd_command numbered(struct command_source *source, struct nd_command command)
{
    uint64_t *rand = &source->rand;
    size_t proposer = (size_t)nd_rand_below(rand, ND_ARRAY_SIZE(source->sequences));
    uint64_t *sequence = &source->sequences[proposer];

    /* Mostly the next number; now and then a repeat, a gap, or one given up. */
    uint64_t back = nd_rand_below(rand, 10) == 0 ? nd_rand_below(rand, 4) : 0;
    *sequence += back == 0 ? 1 + nd_rand_below(rand, 2) : 0;
    command.proposer = 100 + proposer;
    command.sequence = *sequence > back ? *sequence - back : 1;
    command.open_from = command.sequence > 5 ? command.sequence - nd_rand_below(rand, 5) : 1;
    return command;
}

struct nd_command command_next(struct command_source *source)
{
    return numbered(source, any_next(&source->rand));
}

struct nd_command command_next_user(struct command_source *source)
{
    return numbered(source, user_next(&source->rand));
}
