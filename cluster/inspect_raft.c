/* Raft's files, one by one: see raft_layout.h. */
#include <string.h>

#include "storage/base/codec.h"

#include "cluster/command.h"
#include "cluster/inspect_private.h"
#include "cluster/lz4_frame.h"

enum { TYPE_COMMAND = 1, TYPE_BARRIER = 2, TYPE_CHANGE = 3 };

/* --- segments --- */

static const char *command_name(const struct nd_command *command)
{
    switch (command->kind) {
    case ND_COMMAND_NOOP: return "noop";
    case ND_COMMAND_TOPIC_CREATE: return "topic-create";
    case ND_COMMAND_TOPIC_ALTER: return "topic-alter";
    case ND_COMMAND_TOPIC_DELETE: return "topic-delete";
    case ND_COMMAND_MEMBER_REGISTER: return "member-register";
    case ND_COMMAND_USER_CREATE: return "user-create";
    case ND_COMMAND_USER_SEED_ROOT: return "user-seed-root";
    case ND_COMMAND_USER_SET_GRANTS: return "user-set-grants";
    case ND_COMMAND_USER_SET_PASSWORD: return "user-set-password";
    case ND_COMMAND_USER_DELETE: return "user-delete";
    }
    return "unknown";
}

/* Never the hash, only that there is one. */
static void user_values(struct nd_report *report, const struct nd_command *command)
{
    const struct nd_user *user = command->user;

    nd_report_text(report, "user",
                   command->kind == ND_COMMAND_USER_SEED_ROOT ? ND_USER_ROOT_NAME : user->name);
    if (user->hash[0] != '\0') {
        nd_report_text(report, "hash", INSPECT_HIDDEN);
    }
    if (command->kind == ND_COMMAND_USER_CREATE || command->kind == ND_COMMAND_USER_SET_GRANTS) {
        inspect_grants(report, user);
    }
    if (command->kind != ND_COMMAND_USER_DELETE) {
        nd_report_i64(report, "at_ms", user->updated_at_ms);
    }
}

static void command_values(struct nd_report *report, const struct nd_command *command)
{
    nd_report_text(report, "command", command_name(command));
    nd_report_id(report, "proposer", command->proposer);
    nd_report_u64(report, "sequence", command->sequence);
    switch (command->kind) {
    case ND_COMMAND_NOOP: break;
    case ND_COMMAND_TOPIC_CREATE:
        nd_report_text(report, "topic", command->topic_create.request.name);
        nd_report_id(report, "incarnation", command->topic_create.incarnation);
        nd_report_u64(report, "partitions", command->topic_create.request.partitions);
        break;
    case ND_COMMAND_TOPIC_ALTER: nd_report_text(report, "topic", command->topic_alter.name); break;
    case ND_COMMAND_TOPIC_DELETE: nd_report_text(report, "topic", command->topic_delete); break;
    case ND_COMMAND_MEMBER_REGISTER:
        nd_report_id(report, "member", command->member_register.member);
        nd_report_text(report, "node_id", command->member_register.node_id);
        nd_report_text(report, "address", command->member_register.address);
        break;
    case ND_COMMAND_USER_CREATE:
    case ND_COMMAND_USER_SEED_ROOT:
    case ND_COMMAND_USER_SET_GRANTS:
    case ND_COMMAND_USER_SET_PASSWORD:
    case ND_COMMAND_USER_DELETE: user_values(report, command); break;
    }
}

struct segment {
    struct inspect *in;
    const char *path;
    struct nd_slice bytes;
    uint64_t index; /* of the next entry; 0: not known */
    uint64_t entries;
    size_t at;
    bool valid;
};

static void entry_inspect(struct segment *s, uint64_t at, const uint8_t *head, struct nd_slice data)
{
    struct nd_report *report = s->in->report;
    struct nd_command command;
    uint8_t type = head[8];
    bool is_whole = type != TYPE_COMMAND || nd_command_get(data, &command, NULL) == ND_OK;

    if (!is_whole || type < TYPE_COMMAND || type > TYPE_CHANGE) {
        inspect_damage(s->in, s->path, at, "an entry that is no command");
        s->valid = false;
    }
    s->in->entries_term = ND_MAX(s->in->entries_term, nd_get_u64(head));
    if (!s->in->quiet) {
        nd_report_begin(report, "raft-entry");
        nd_report_u64(report, "at", at);
        if (s->index != 0) {
            nd_report_u64(report, "index", s->index);
        }
        nd_report_u64(report, "term", nd_get_u64(head));
        nd_report_text(report, "type",
                       type == TYPE_COMMAND   ? "command"
                       : type == TYPE_BARRIER ? "barrier"
                       : type == TYPE_CHANGE  ? "configuration"
                                              : "unknown");
        nd_report_u64(report, "size", data.size);
        if (is_whole && type == TYPE_COMMAND) {
            command_values(report, &command);
        } else if (type == TYPE_CHANGE) {
            nd_report_bytes(report, "data", data);
        }
        nd_report_end(report);
    }
    if (is_whole && type == TYPE_COMMAND) {
        nd_command_release(&command);
    }
    s->index += s->index != 0;
    s->entries += 1;
}

/* The batch at s->at; false: none that is whole begins there. */
static bool batch_inspect(struct segment *s)
{
    const uint8_t *head = s->bytes.data + s->at;
    uint64_t count;
    size_t size = nd_raft_batch_size(nd_slice_make(head, s->bytes.size - s->at), &count);

    if (size == 0) {
        return false;
    }
    const uint8_t *entry = head + ND_RAFT_BATCH_HEAD_SIZE;
    const uint8_t *data = entry + count * ND_RAFT_ENTRY_HEAD_SIZE;
    for (uint64_t i = 0; i < count; i++, entry += ND_RAFT_ENTRY_HEAD_SIZE) {
        size_t entry_size = nd_get_u32(entry + 12);
        entry_inspect(s, (uint64_t)(data - s->bytes.data), entry, nd_slice_make(data, entry_size));
        data += nd_raft_padded(entry_size);
    }
    s->at += size;
    return true;
}

static bool is_zeros(struct nd_slice bytes)
{
    return bytes.size == 0 ||
           (bytes.data[0] == 0 && memcmp(bytes.data, bytes.data + 1, bytes.size - 1) == 0);
}

static bool segment_inspect(struct inspect *in, const char *path, const struct nd_raft_name *name,
                            struct nd_slice bytes)
{
    struct segment s = {
        .in = in, .path = path, .bytes = bytes, .at = ND_RAFT_FORMAT_SIZE, .valid = true};

    if (name->kind == ND_RAFT_OPEN && is_zeros(bytes)) {
        return true;
    }
    if (bytes.size < ND_RAFT_FORMAT_SIZE || nd_get_u64(bytes.data) != ND_RAFT_FORMAT) {
        inspect_damage(in, path, 0, "not a segment of Raft's log");
        return false;
    }
    s.index = name->kind == ND_RAFT_CLOSED ? name->first : 0;
    while (s.at < bytes.size) {
        if (batch_inspect(&s)) {
            continue;
        }
        struct nd_slice rest = nd_slice_make(bytes.data + s.at, bytes.size - s.at);
        if (name->kind == ND_RAFT_CLOSED || !is_zeros(rest)) {
            inspect_damage(in, path, s.at, "a batch of entries that is not whole");
            return false;
        }
        break;
    }
    if (name->kind == ND_RAFT_CLOSED && s.entries != name->last - name->first + 1) {
        inspect_damage(in, path, s.at, "not the entries that the name says");
        return false;
    }
    return s.valid;
}

/* --- the others --- */

static bool term_inspect(struct inspect *in, const char *path, struct nd_slice bytes)
{
    bool valid = bytes.size == ND_RAFT_TERM_SIZE && nd_get_u64(bytes.data) == ND_RAFT_FORMAT &&
                 nd_get_u64(bytes.data + 8) > 0;
    size_t size = strlen(path);

    if (valid) { /* the version says which of the two files it is */
        valid = (nd_get_u64(bytes.data + 8) % 2 == 1) == (path[size - 1] == '1');
    }
    if (!valid) {
        inspect_damage(in, path, 0, "not a term and a vote");
        return false;
    }
    if (nd_get_u64(bytes.data + 8) > in->term_version) { /* the newer one counts */
        in->term_version = nd_get_u64(bytes.data + 8);
        in->term = nd_get_u64(bytes.data + 16);
    }
    if (!in->quiet) {
        nd_report_begin(in->report, "raft-term");
        nd_report_u64(in->report, "version", nd_get_u64(bytes.data + 8));
        nd_report_u64(in->report, "term", nd_get_u64(bytes.data + 16));
        nd_report_id(in->report, "voted_for", nd_get_u64(bytes.data + 24));
        nd_report_end(in->report);
    }
    return true;
}

static bool meta_inspect(struct inspect *in, const char *path, struct nd_slice bytes)
{
    bool valid = bytes.size >= ND_RAFT_META_HEAD_SIZE && nd_get_u64(bytes.data) == ND_RAFT_FORMAT;

    valid =
        valid && nd_get_u64(bytes.data + 24) == bytes.size - ND_RAFT_META_HEAD_SIZE &&
        nd_raft_crc(nd_slice_make(bytes.data + 16, bytes.size - 16)) == nd_get_u64(bytes.data + 8);
    if (!valid) {
        inspect_damage(in, path, 0, "not what belongs to a snapshot");
        return false;
    }
    if (!in->quiet) {
        nd_report_begin(in->report, "raft-snapshot-meta");
        nd_report_u64(in->report, "configuration_index", nd_get_u64(bytes.data + 16));
        nd_report_bytes(in->report, "configuration",
                        nd_slice_make(bytes.data + ND_RAFT_META_HEAD_SIZE,
                                      bytes.size - ND_RAFT_META_HEAD_SIZE));
        nd_report_end(in->report);
    }
    return true;
}

static bool snapshot_inspect(struct inspect *in, const char *path, struct nd_slice bytes)
{
    if (!nd_lz4_frame_is_whole(bytes)) {
        inspect_damage(in, path, 0, nd_lz4_frame_begins(bytes) ? "not whole" : "no snapshot");
        return false;
    }
    if (!in->quiet) {
        nd_report_begin(in->report, "raft-snapshot");
        nd_report_u64(in->report, "size", bytes.size);
        nd_report_text(in->report, "coding", "an LZ4 frame, not opened; `view` has its content");
        nd_report_end(in->report);
    }
    return true;
}

void inspect_raft_bytes(struct inspect *in, const char *path, const struct nd_raft_name *name,
                        struct nd_slice bytes, bool *valid_out)
{
    *valid_out = false;
    switch (name->kind) {
    case ND_RAFT_NONE: break;
    case ND_RAFT_CLOSED:
    case ND_RAFT_OPEN: *valid_out = segment_inspect(in, path, name, bytes); break;
    case ND_RAFT_TERM: *valid_out = term_inspect(in, path, bytes); break;
    case ND_RAFT_SNAPSHOT: *valid_out = snapshot_inspect(in, path, bytes); break;
    case ND_RAFT_META: *valid_out = meta_inspect(in, path, bytes); break;
    }
}
