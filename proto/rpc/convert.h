/* Between protobuf-c messages, bytes and the core's byte buffers. @thread any */
#ifndef ND_RPC_CONVERT_H
#define ND_RPC_CONVERT_H

#include <protobuf-c/protobuf-c.h>

#include "storage/base/arena.h"
#include "storage/base/slice.h"

#include "proto/rpc/core.h"

/* The caller's, destroyed with grpc_byte_buffer_destroy. The bytes of a message with a text field
 * called "…password" are overwritten when their last user, the transport, lets go of them. */
grpc_byte_buffer *nd_rpc_buffer_pack(const ProtobufCMessage *message);
grpc_byte_buffer *nd_rpc_buffer_copy(struct nd_slice bytes);
/* Borrows `bytes` until the last user is done; then `release(release_data)` runs, on any thread. */
grpc_byte_buffer *nd_rpc_buffer_borrow(struct nd_slice bytes, void (*release)(void *release_data),
                                       void *release_data);

/* A text that is overwritten when its last user lets go of it. */
grpc_slice nd_rpc_slice_secret(const char *text);

/* The bytes of a received message in one piece: borrowed from its buffer when they are already,
 * copied otherwise. Small slices live inside the struct, so `bytes` is valid while the struct stays
 * in place. `secret`, set before the open: they are overwritten by the close. */
struct nd_rpc_bytes {
    grpc_slice held;
    bool open, secret;
};
/* Takes the buffer over. */
struct nd_slice nd_rpc_bytes_open(struct nd_rpc_bytes *bytes, grpc_byte_buffer *buffer);
void nd_rpc_bytes_close(struct nd_rpc_bytes *bytes); /* nothing when not open */
/* Destroy a received buffer that nobody opened, its bytes overwritten first. NULL passes. */
void nd_rpc_buffer_wipe(grpc_byte_buffer *buffer);

/* Decode into the arena. NULL: not a message of that type, or larger than the arena's limit. */
const void *nd_rpc_unpack(struct nd_arena *arena, const ProtobufCMessageDescriptor *type,
                          struct nd_slice bytes);
/* Does no text field hold a NUL byte? A decoded text ends at the first one, so that it would stand
 * for another than was sent. `bytes` were decoded as this type. */
bool nd_rpc_texts_are_whole(const ProtobufCMessageDescriptor *type, struct nd_slice bytes);
/* The limit of such an arena for messages up to `message_bytes_max`. */
size_t nd_rpc_decode_bytes_max(uint32_t message_bytes_max);

#endif
