#include "tests/unit/cluster/commands.h"

#include <stdio.h>

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

struct nd_command command_next(struct command_source *source)
{
    uint64_t *rand = &source->rand;
    size_t proposer = (size_t)nd_rand_below(rand, ND_ARRAY_SIZE(source->sequences));
    uint64_t *sequence = &source->sequences[proposer];
    char name[32];
    struct nd_command command;

    snprintf(name, sizeof name, "topic-%u", (unsigned)nd_rand_below(rand, 40));
    uint64_t dice = nd_rand_below(rand, 100);
    if (dice < 45) {
        command = command_create(0, name, (uint32_t)nd_rand_below(rand, 6));
        command.topic_create.incarnation = nd_rand(rand);
    } else if (dice < 70) {
        command = command_alter_partitions(0, name, (uint32_t)nd_rand_below(rand, 9));
        command.topic_alter.has_retention = dice % 2 == 0;
        command.topic_alter.retention_ms = dice;
    } else if (dice < 90) {
        command = command_delete(0, name);
    } else if (dice < 97) {
        snprintf(name, sizeof name, "node-%u", (unsigned)nd_rand_below(rand, 4));
        command = command_register(0, 1 + nd_rand_below(rand, 5), name);
    } else {
        command = command_of(0, ND_COMMAND_NOOP);
    }
    /* Mostly the next number; now and then a repeat, a gap, or one given up. */
    uint64_t back = nd_rand_below(rand, 10) == 0 ? nd_rand_below(rand, 4) : 0;
    *sequence += back == 0 ? 1 + nd_rand_below(rand, 2) : 0;
    command.proposer = 100 + proposer;
    command.sequence = *sequence > back ? *sequence - back : 1;
    command.open_from = command.sequence > 5 ? command.sequence - nd_rand_below(rand, 5) : 1;
    return command;
}
