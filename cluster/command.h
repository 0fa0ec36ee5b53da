/* One change of the replicated metadata, and how it stands in the Raft log.
 *
 * ENTRY FORMAT, little-endian: 0 u32 format (1) | 4 u32 size of the body | 8 body, a protobuf
 * Command | zeros up to a multiple of 8 (this Raft library loses entries of other sizes at a
 * restart).
 *
 * To add a command: (1) a message and a number in proto/narad/cluster/v1/command.proto; (2) a kind
 * and a struct here; (3) its cases in command.c; (4) its apply function in state.c; (5) rows in the
 * tests. */
#ifndef ND_COMMAND_H
#define ND_COMMAND_H

#include "storage/base/buf.h"
#include "storage/base/err.h"

#include "cluster/topic.h"
#include "cluster/user.h"

enum { ND_COMMAND_SIZE_MAX = 64 * 1024, ND_NODE_ID_SIZE_MAX = 255, ND_ADDRESS_SIZE_MAX = 255 };

/* The numbers of the protobuf fields: frozen. */
enum nd_command_kind {
    ND_COMMAND_NOOP = 16,
    ND_COMMAND_TOPIC_CREATE = 17,
    ND_COMMAND_TOPIC_ALTER = 18,
    ND_COMMAND_TOPIC_DELETE = 19,
    ND_COMMAND_MEMBER_REGISTER = 20,
    ND_COMMAND_USER_CREATE = 21,
    ND_COMMAND_USER_SEED_ROOT = 22,
    ND_COMMAND_USER_SET_GRANTS = 23,
    ND_COMMAND_USER_SET_PASSWORD = 24,
    ND_COMMAND_USER_DELETE = 25,
};

struct nd_command_topic_create {
    struct nd_topic_create request;
    uint64_t incarnation;
    int64_t created_at_s;
};

struct nd_member_register {
    uint64_t member;
    char node_id[ND_NODE_ID_SIZE_MAX + 1];
    char address[ND_ADDRESS_SIZE_MAX + 1];
};

struct nd_command {
    uint64_t proposer;  /* random per start of a node, never 0 */
    uint64_t sequence;  /* 1, 2, 3 ... of this proposer */
    uint64_t open_from; /* every sequence below it has been answered; at most `sequence` */
    enum nd_command_kind kind;
    union {
        struct nd_command_topic_create topic_create;
        struct nd_topic_alter topic_alter;
        char topic_delete[ND_TOPIC_NAME_SIZE_MAX + 1]; /* the name */
        struct nd_member_register member_register;
        /* Of the five about users, a reference. What the command does not carry is empty: create
         * name, hash, grants; seed hash; set grants name, grants; set password name, hash; delete
         * name. updated_at_ms is when it was proposed. */
        struct {
            struct nd_user *user;
            /* Set password: only in the place of that hash; "": of any. */
            char replaces[ND_USER_HASH_SIZE_MAX + 1];
        };
    };
};

static inline bool nd_command_is_of_user(enum nd_command_kind kind)
{
    return kind >= ND_COMMAND_USER_CREATE && kind <= ND_COMMAND_USER_DELETE;
}

/* What a command about a user carries, by the rules of user.h: INVALID_ARGUMENT with their texts.
 * Asked before it is proposed and again when it is applied. One that passed fits into an entry.
 * @thread any */
ND_CHECKED enum nd_err nd_command_user_check(const struct nd_command *command,
                                             struct nd_errmsg *msg);
/* Gives back the reference that a command about a user holds. */
void nd_command_release(struct nd_command *command);

/* Append one entry to `out`; its size is a multiple of 8. A failed buffer is the caller's to check.
 */
void nd_command_put(struct nd_buf *out, const struct nd_command *command);

/* The bytes of one entry. CORRUPT: not exactly one encoding. UNSUPPORTED: a format, a command
 * number, a field or an action that this version does not know. nd_command_release() `out` after
 * ND_OK; on an error it holds nothing. @thread any */
ND_CHECKED enum nd_err nd_command_get(struct nd_slice in, struct nd_command *out,
                                      struct nd_errmsg *msg);

#endif
