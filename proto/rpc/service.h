/* What the protoc plugin says about a .proto file and protobuf-c does not: the paths and stream
 * kinds of its methods and its serialized descriptor. One constant `<path>_file` for each file, in
 * the generated
 * "<path>.nd.h". */
#ifndef ND_RPC_SERVICE_H
#define ND_RPC_SERVICE_H

#include <stddef.h>
#include <stdint.h>

enum nd_rpc_kind { ND_RPC_UNARY, ND_RPC_SERVER_STREAM, ND_RPC_CLIENT_STREAM, ND_RPC_BIDI };

struct nd_rpc_method_info {
    const char *path; /* "/narad.v1.Broker/Produce" */
    enum nd_rpc_kind kind;
};

struct nd_rpc_file {
    const char *name;          /* "narad/v1/broker.proto" */
    const uint8_t *descriptor; /* a google.protobuf.FileDescriptorProto without comments */
    size_t descriptor_size;
    const struct nd_rpc_method_info *methods; /* of all its services, in their order */
    size_t methods_count;
};

#endif
