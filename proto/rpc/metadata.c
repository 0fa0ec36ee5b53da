/* What travels beside the messages of a client's call: the channel's metadata and the call's own on
 * the way there, the status and its metadata on the way back. */
#include <stdio.h>
#include <string.h>

#include "storage/base/alloc.h"

#include "proto/rpc/channel.h"

static bool is_legal(const grpc_metadata *entry)
{
    return grpc_header_key_is_legal(entry->key) &&
           (grpc_is_binary_header(entry->key) || grpc_header_nonbin_value_is_legal(entry->value));
}

enum nd_err nd_rpc_metadata_add(struct nd_rpc_metadata_list *list,
                                const struct nd_rpc_metadata *entries, size_t count,
                                struct nd_errmsg *msg)
{
    if (count == 0) {
        return ND_OK;
    }
    list->entries = nd_xrealloc(list->entries, (list->count + count) * sizeof *list->entries);
    for (size_t i = 0; i < count; i++) {
        grpc_metadata *entry = &list->entries[list->count++];
        memset(entry, 0, sizeof *entry);
        entry->key = grpc_slice_from_copied_string(entries[i].key);
        entry->value = strcmp(entries[i].key, "authorization") == 0
                           ? nd_rpc_slice_secret(entries[i].value)
                           : grpc_slice_from_copied_string(entries[i].value);
        if (!is_legal(entry)) {
            nd_errmsg_set(msg, "metadata \"%s\" is not legal", entries[i].key);
            return ND_ERR_INVALID_ARGUMENT;
        }
    }
    return ND_OK;
}

void nd_rpc_metadata_release(struct nd_rpc_metadata_list *list)
{
    for (size_t i = 0; i < list->count; i++) {
        grpc_slice_unref(list->entries[i].key);
        grpc_slice_unref(list->entries[i].value);
    }
    nd_free(list->entries);
    *list = (struct nd_rpc_metadata_list){NULL, 0};
}

enum nd_err nd_rpc_head_init(struct nd_rpc_head *head, const struct nd_rpc_channel *channel,
                             const struct nd_rpc_call_options *options, struct nd_errmsg *msg)
{
    const struct nd_rpc_metadata_list *common = &channel->metadata;

    head->channel = channel;
    head->wait_for_ready = options->wait_for_ready;
    if (options->metadata_count == 0) {
        return ND_OK; /* the channel's are sent as they lie there */
    }
    for (size_t i = 0; i < common->count; i++) {
        grpc_slice_ref(common->entries[i].key);
        grpc_slice_ref(common->entries[i].value);
    }
    head->own.entries = nd_xcalloc(common->count + 1, sizeof *head->own.entries);
    if (common->count > 0) {
        memcpy(head->own.entries, common->entries, common->count * sizeof *common->entries);
    }
    head->own.count = common->count;
    return nd_rpc_metadata_add(&head->own, options->metadata, options->metadata_count, msg);
}

void nd_rpc_head_op(const struct nd_rpc_head *head, grpc_op *op)
{
    const struct nd_rpc_metadata_list *list =
        head->own.count > 0 ? &head->own : &head->channel->metadata;

    op->op = GRPC_OP_SEND_INITIAL_METADATA;
    op->data.send_initial_metadata.metadata = list->entries;
    op->data.send_initial_metadata.count = list->count;
    op->flags = GRPC_INITIAL_METADATA_WAIT_FOR_READY_EXPLICITLY_SET |
                (head->wait_for_ready ? GRPC_INITIAL_METADATA_WAIT_FOR_READY : 0u);
}

/* --- the way back --- */

void nd_rpc_outcome_init(struct nd_rpc_outcome *outcome)
{
    outcome->code = GRPC_STATUS_UNKNOWN;
    outcome->details = grpc_empty_slice();
    grpc_metadata_array_init(&outcome->initial);
    grpc_metadata_array_init(&outcome->trailing);
}

void nd_rpc_outcome_op(struct nd_rpc_outcome *outcome, grpc_op *op)
{
    op->op = GRPC_OP_RECV_STATUS_ON_CLIENT;
    op->data.recv_status_on_client.trailing_metadata = &outcome->trailing;
    op->data.recv_status_on_client.status = &outcome->code;
    op->data.recv_status_on_client.status_details = &outcome->details;
}

static void text_get(grpc_slice value, char *out, size_t out_size)
{
    snprintf(out, out_size, "%.*s", (int)ND_MIN(GRPC_SLICE_LENGTH(value), out_size),
             (const char *)GRPC_SLICE_START_PTR(value));
}

static uint32_t number_get(grpc_slice value)
{
    const uint8_t *digits = GRPC_SLICE_START_PTR(value);
    uint64_t number = 0;

    for (size_t i = 0; i < GRPC_SLICE_LENGTH(value); i++) {
        if (digits[i] < '0' || digits[i] > '9') {
            return 0;
        }
        number = ND_MIN(number * 10 + (uint64_t)(digits[i] - '0'), (uint64_t)UINT32_MAX);
    }
    return (uint32_t)number;
}

struct nd_rpc_status nd_rpc_outcome_status(struct nd_rpc_outcome *outcome)
{
    outcome->text = grpc_slice_to_c_string(outcome->details);
    struct nd_rpc_status status = {(int)outcome->code, outcome->text, outcome->reason, 0};
    for (size_t i = 0; i < outcome->trailing.count; i++) {
        const grpc_metadata *entry = &outcome->trailing.metadata[i];
        if (grpc_slice_str_cmp(entry->key, ND_RPC_KEY_REASON) == 0) {
            text_get(entry->value, outcome->reason, sizeof outcome->reason);
        } else if (grpc_slice_str_cmp(entry->key, ND_RPC_KEY_RETRY_AFTER) == 0) {
            status.retry_after_ms = number_get(entry->value);
        }
    }
    return status;
}

void nd_rpc_outcome_release(struct nd_rpc_outcome *outcome)
{
    gpr_free(outcome->text);
    grpc_slice_unref(outcome->details);
    grpc_metadata_array_destroy(&outcome->initial);
    grpc_metadata_array_destroy(&outcome->trailing);
}
