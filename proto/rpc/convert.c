#include "proto/rpc/convert.h"

#include <grpc/byte_buffer_reader.h>
#include <string.h>

#include "storage/base/wipe.h"

static grpc_byte_buffer *buffer_of(grpc_slice slice)
{
    grpc_byte_buffer *buffer = grpc_raw_byte_buffer_create(&slice, 1);

    grpc_slice_unref(slice);
    return buffer;
}

/* --- packing --- */

/* A packed message, overwritten before it is freed. */
struct secret {
    size_t size;
    uint8_t bytes[];
};

static void secret_free(void *data)
{
    struct secret *secret = data;

    nd_wipe(secret->bytes, secret->size);
    nd_free(secret);
}

static bool is_secret(const ProtobufCMessageDescriptor *type)
{
    static const char word[] = "password";

    for (unsigned i = 0; i < type->n_fields; i++) {
        const ProtobufCFieldDescriptor *field = &type->fields[i];
        size_t size = strlen(field->name);
        if (field->type == PROTOBUF_C_TYPE_STRING && size >= sizeof word - 1 &&
            memcmp(field->name + size - (sizeof word - 1), word, sizeof word - 1) == 0) {
            return true;
        }
    }
    return false;
}

/* `size`: of what this end made. */
static grpc_slice secret_new(size_t size)
{
    struct secret *secret = nd_xmalloc(sizeof *secret + size);

    secret->size = size;
    return grpc_slice_new_with_user_data(secret->bytes, size, secret_free, secret);
}

grpc_slice nd_rpc_slice_secret(const char *text)
{
    size_t size = strlen(text);
    grpc_slice slice = secret_new(size);

    if (size > 0) {
        memcpy(GRPC_SLICE_START_PTR(slice), text, size);
    }
    return slice;
}

grpc_byte_buffer *nd_rpc_buffer_pack(const ProtobufCMessage *message)
{
    size_t size = protobuf_c_message_get_packed_size(message);
    grpc_slice slice = is_secret(message->descriptor) ? secret_new(size) : grpc_slice_malloc(size);

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

/* --- received bytes --- */

static void slice_wipe(grpc_slice *slice)
{
    nd_wipe(GRPC_SLICE_START_PTR(*slice), GRPC_SLICE_LENGTH(*slice));
}

/* All pieces but the one that `held` shares; NULL: all. Nobody else reads them: the transport gave
 * them away with the message. */
static void others_wipe(grpc_byte_buffer *buffer, grpc_slice *held)
{
    grpc_slice_buffer *pieces = &buffer->data.raw.slice_buffer;

    for (size_t i = 0; i < pieces->count; i++) {
        grpc_slice *piece = &pieces->slices[i];
        if (held == NULL || GRPC_SLICE_START_PTR(*piece) != GRPC_SLICE_START_PTR(*held)) {
            slice_wipe(piece);
        }
    }
}

void nd_rpc_buffer_wipe(grpc_byte_buffer *buffer)
{
    if (buffer != NULL) {
        others_wipe(buffer, NULL);
        grpc_byte_buffer_destroy(buffer);
    }
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
    if (bytes->secret) {
        others_wipe(buffer, &bytes->held);
    }
    grpc_byte_buffer_destroy(buffer);
    bytes->open = true;
    return nd_slice_make(GRPC_SLICE_START_PTR(bytes->held), GRPC_SLICE_LENGTH(bytes->held));
}

void nd_rpc_bytes_close(struct nd_rpc_bytes *bytes)
{
    if (bytes->open) {
        if (bytes->secret) {
            slice_wipe(&bytes->held);
        }
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

/* The wire types of protobuf. */
enum { WIRE_VARINT = 0, WIRE_FIXED64 = 1, WIRE_BYTES = 2, WIRE_FIXED32 = 5 };

static bool varint_get(struct nd_slice *rest, uint64_t *out)
{
    *out = 0;
    for (unsigned shift = 0; shift < 64 && rest->size > 0; shift += 7) {
        uint8_t byte = *rest->data;
        *rest = nd_slice_make(rest->data + 1, rest->size - 1);
        *out |= (uint64_t)(byte & 0x7f) << shift;
        if (byte < 0x80) {
            return true;
        }
    }
    return false;
}

static bool field_is_whole(const ProtobufCMessageDescriptor *type, unsigned number,
                           struct nd_slice value)
{
    const ProtobufCFieldDescriptor *field = protobuf_c_message_descriptor_get_field(type, number);

    if (field != NULL && field->type == PROTOBUF_C_TYPE_MESSAGE) {
        return nd_rpc_texts_are_whole(field->descriptor, value); /* as deep as the types are */
    }
    return field == NULL || field->type != PROTOBUF_C_TYPE_STRING ||
           memchr(value.data, 0, value.size) == NULL;
}

bool nd_rpc_texts_are_whole(const ProtobufCMessageDescriptor *type, struct nd_slice bytes)
{
    struct nd_slice rest = bytes;

    if (bytes.size == 0 || memchr(bytes.data, 0, bytes.size) == NULL) {
        return true;
    }
    while (rest.size > 0) {
        uint64_t key, size;
        if (!varint_get(&rest, &key)) {
            return false;
        }
        switch (key & 7) {
        case WIRE_VARINT:
            if (!varint_get(&rest, &size)) {
                return false;
            }
            continue;
        case WIRE_FIXED64: size = 8; break;
        case WIRE_FIXED32: size = 4; break;
        case WIRE_BYTES:
            if (varint_get(&rest, &size)) {
                break;
            }
            return false;
        default: return false;
        }
        if (size > rest.size ||
            ((key & 7) == WIRE_BYTES &&
             !field_is_whole(type, (unsigned)(key >> 3), nd_slice_make(rest.data, (size_t)size)))) {
            return false;
        }
        rest = nd_slice_make(rest.data + size, rest.size - (size_t)size);
    }
    return true;
}

size_t nd_rpc_decode_bytes_max(uint32_t message_bytes_max)
{
    return (size_t)message_bytes_max * ND_RPC_DECODE_GROWTH_MAX + ND_RPC_DECODE_BYTES_MIN;
}
