#include "proto/rpc/convert.h"

#include <grpc/byte_buffer_reader.h>

static grpc_byte_buffer *buffer_of(grpc_slice slice)
{
    grpc_byte_buffer *buffer = grpc_raw_byte_buffer_create(&slice, 1);

    grpc_slice_unref(slice);
    return buffer;
}

grpc_byte_buffer *nd_rpc_buffer_pack(const ProtobufCMessage *message)
{
    grpc_slice slice = grpc_slice_malloc(protobuf_c_message_get_packed_size(message));

    protobuf_c_message_pack(message, GRPC_SLICE_START_PTR(slice));
    return buffer_of(slice);
}

grpc_byte_buffer *nd_rpc_buffer_copy(struct nd_slice bytes)
{
    grpc_slice slice = grpc_slice_malloc(bytes.size);

    if (bytes.size > 0) {
        memcpy(GRPC_SLICE_START_PTR(slice), bytes.data, bytes.size);
    }
    return buffer_of(slice);
}

grpc_byte_buffer *nd_rpc_buffer_borrow(struct nd_slice bytes, void (*release)(void *release_data),
                                       void *release_data)
{
    /* The core only reads it; its type has no const. */
    void *data = (void *)(uintptr_t)bytes.data;

    return buffer_of(grpc_slice_new_with_user_data(data, bytes.size, release, release_data));
}

struct nd_slice nd_rpc_bytes_open(struct nd_rpc_bytes *bytes, grpc_byte_buffer *buffer)
{
    ND_ASSERT(!bytes->open);
    if (buffer->type == GRPC_BB_RAW && buffer->data.raw.compression == GRPC_COMPRESS_NONE &&
        buffer->data.raw.slice_buffer.count == 1) {
        bytes->held = grpc_slice_ref(buffer->data.raw.slice_buffer.slices[0]);
    } else {
        grpc_byte_buffer_reader reader;
        int readable = grpc_byte_buffer_reader_init(&reader, buffer);
        ND_ASSERT(readable);
        bytes->held = grpc_byte_buffer_reader_readall(&reader);
        grpc_byte_buffer_reader_destroy(&reader);
    }
    grpc_byte_buffer_destroy(buffer);
    bytes->open = true;
    return nd_slice_make(GRPC_SLICE_START_PTR(bytes->held), GRPC_SLICE_LENGTH(bytes->held));
}

void nd_rpc_bytes_close(struct nd_rpc_bytes *bytes)
{
    if (bytes->open) {
        grpc_slice_unref(bytes->held);
        bytes->open = false;
    }
}

static void *arena_alloc(void *arena, size_t size)
{
    return nd_arena_alloc(arena, size);
}

static void arena_free(void *arena, void *pointer)
{
    (void)arena;
    (void)pointer; /* the arena goes whole */
}

const void *nd_rpc_unpack(struct nd_arena *arena, const ProtobufCMessageDescriptor *type,
                          struct nd_slice bytes)
{
    ProtobufCAllocator allocator = {arena_alloc, arena_free, arena};

    return protobuf_c_message_unpack(type, &allocator, bytes.size, bytes.data);
}

size_t nd_rpc_decode_bytes_max(uint32_t message_bytes_max)
{
    return (size_t)message_bytes_max * ND_RPC_DECODE_GROWTH_MAX + ND_RPC_DECODE_BYTES_MIN;
}
