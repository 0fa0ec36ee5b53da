/* Every message that a server or a client receives, decoded as the channel stack does it. The first
 * byte chooses the type. What decodes is packed and decoded again: the same bytes. */
#include "proto/grpc/health/v1/health.pb-c.h"
#include "proto/grpc/reflection/v1/reflection.pb-c.h"
#include "proto/narad/v1/admin.pb-c.h"
#include "proto/narad/v1/broker.pb-c.h"
#include "proto/rpc/convert.h"
#include "server/rpc/settle.h"
#include "tests/fuzz/fuzz.h"

#define TYPE(name) &narad__v1__##name##__descriptor
static const ProtobufCMessageDescriptor *const types[] = {
    TYPE(ack_request),
    TYPE(subscribe_request),
    TYPE(consume_request),
    TYPE(consume_stream_request),
    TYPE(replay_request),
    TYPE(produce_request),
    TYPE(produce_stream_request),
    TYPE(create_topic_request),
    TYPE(get_topic_request),
    TYPE(list_topics_request),
    TYPE(alter_topic_request),
    TYPE(delete_topic_request),
    TYPE(metrics_request),
    TYPE(version_request),
    TYPE(produce_response),
    TYPE(produce_stream_response),
    TYPE(consume_response),
    TYPE(consume_stream_response),
    TYPE(subscribe_response),
    TYPE(ack_response),
    TYPE(replay_response),
    TYPE(list_topics_response),
    &grpc__health__v1__health_check_request__descriptor,
    &grpc__reflection__v1__server_reflection_request__descriptor,
};

static void settles(size_t count, Narad__V1__Settle *const *items)
{
    for (size_t i = 0; i < count; i++) {
        struct nd_settle_item item;
        nd_settle_item_get(items[i], &item);
        FUZZ_CHECK(item.result != ND_OK || item.nonce > 0);
    }
}

/* Pack into memory of exactly the size that is promised. */
static uint8_t *pack(const ProtobufCMessage *message, size_t *size_out)
{
    *size_out = protobuf_c_message_get_packed_size(message);
    uint8_t *bytes = nd_xmalloc(*size_out + 1);
    FUZZ_CHECK(protobuf_c_message_pack(message, bytes) == *size_out);
    return bytes;
}

static void round_trip(const ProtobufCMessageDescriptor *type, const ProtobufCMessage *message)
{
    struct nd_arena arena;
    size_t size, size_again;

    nd_arena_init(&arena, nd_rpc_decode_bytes_max(16 << 20));
    uint8_t *bytes = pack(message, &size);
    const ProtobufCMessage *again = nd_rpc_unpack(&arena, type, nd_slice_make(bytes, size));
    if (again != NULL) { /* protobuf-c reads field number 0 as an unknown one, but only once */
        uint8_t *bytes_again = pack(again, &size_again);
        FUZZ_CHECK(size == size_again && memcmp(bytes, bytes_again, size) == 0);
        nd_free(bytes_again);
    }
    nd_free(bytes);
    nd_arena_release(&arena);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct nd_arena arena;

    if (size < 1) {
        return 0;
    }
    const ProtobufCMessageDescriptor *type = types[data[0] % ND_ARRAY_SIZE(types)];
    uint8_t *copy = fuzz_copy(data + 1, size - 1);
    /* A limit that small messages meet, too. */
    nd_arena_init(&arena, nd_rpc_decode_bytes_max((data[0] & 0x80) != 0 ? 0 : 16 << 20));
    const void *message = nd_rpc_unpack(&arena, type, nd_slice_make(copy, size - 1));
    if (message != NULL) {
        round_trip(type, message);
        if (type == TYPE(ack_request)) {
            const Narad__V1__AckRequest *request = message;
            settles(request->n_settles, request->settles);
        } else if (type == TYPE(subscribe_request)) {
            const Narad__V1__SubscribeRequest *request = message;
            settles(request->n_settles, request->settles);
        }
    }
    nd_arena_release(&arena);
    nd_free(copy);
    return 0;
}
