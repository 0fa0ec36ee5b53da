/* What the plugin writes for one .proto file. */
#ifndef ND_PLUGIN_WRITE_H
#define ND_PLUGIN_WRITE_H

#include "google/protobuf/descriptor.pb-c.h"

/* "narad/v1/broker.proto" and ".nd.h" give "narad/v1/broker.nd.h". malloc'ed, the caller's. */
char *plugin_output_name(const char *proto_name, const char *suffix);

/* The text of the header and of the source. malloc'ed, the caller's. The source contains the
 * descriptor without comments: source_code_info of `file` is dropped. */
char *plugin_write_header(const Google__Protobuf__FileDescriptorProto *file);
char *plugin_write_source(Google__Protobuf__FileDescriptorProto *file);

#endif
