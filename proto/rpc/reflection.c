/* Server reflection: clients ask which services there are and how their messages look. v1 and
 * v1alpha have the same messages on the wire, so one handler with the v1 types answers both. */
#include <string.h>

#include "storage/base/alloc.h"

#include "google/protobuf/descriptor.pb-c.h"
#include "proto/grpc/reflection/v1/reflection.nd.h"
#include "proto/grpc/reflection/v1/reflection.pb-c.h"
#include "proto/grpc/reflection/v1alpha/reflection.nd.h"
#include "proto/rpc/server_impl.h"

typedef Google__Protobuf__FileDescriptorProto file_proto;
typedef Google__Protobuf__DescriptorProto message_proto;
typedef Google__Protobuf__EnumDescriptorProto enum_proto;
typedef Google__Protobuf__ServiceDescriptorProto service_proto;
typedef Grpc__Reflection__V1__ServerReflectionRequest reflection_request;
typedef Grpc__Reflection__V1__ServerReflectionResponse reflection_response;
typedef Grpc__Reflection__V1__FileDescriptorResponse files_response;
typedef Grpc__Reflection__V1__ListServiceResponse list_response;
typedef Grpc__Reflection__V1__ServiceResponse service_response;
typedef Grpc__Reflection__V1__ErrorResponse error_response;

#define REQUEST(name)  GRPC__REFLECTION__V1__SERVER_REFLECTION_REQUEST__MESSAGE_REQUEST_##name
#define RESPONSE(name) GRPC__REFLECTION__V1__SERVER_REFLECTION_RESPONSE__MESSAGE_RESPONSE_##name

struct nd_rpc_reflection {
    const struct nd_rpc_file **files;
    file_proto **protos; /* decoded, in the order of `files` */
    size_t count;
    service_response *services;
    service_response **services_list;
    size_t services_count;
};

static int file_find(const struct nd_rpc_reflection *reflection, const char *name)
{
    for (size_t i = 0; i < reflection->count; i++) {
        if (strcmp(reflection->files[i]->name, name) == 0) {
            return (int)i;
        }
    }
    return -1;
}

static void services_list(struct nd_rpc_reflection *reflection)
{
    size_t total = 0, at = 0;

    for (size_t i = 0; i < reflection->count; i++) {
        total += reflection->protos[i]->n_service;
    }
    reflection->services = nd_xcalloc(total + 1, sizeof *reflection->services);
    reflection->services_list = nd_xcalloc(total + 1, sizeof(*reflection->services_list));
    reflection->services_count = total;
    for (size_t i = 0; i < reflection->count; i++) {
        const file_proto *proto = reflection->protos[i];
        for (size_t s = 0; s < proto->n_service; s++) {
            service_response *service = &reflection->services[at];
            grpc__reflection__v1__service_response__init(service);
            service->name = nd_xasprintf("%s.%s", proto->package, proto->service[s]->name);
            reflection->services_list[at++] = service;
        }
    }
}

/* Every import must be there, or clients could not use what they get. */
static enum nd_err imports_check(const struct nd_rpc_reflection *reflection, struct nd_errmsg *msg)
{
    for (size_t i = 0; i < reflection->count; i++) {
        const file_proto *proto = reflection->protos[i];
        for (size_t d = 0; d < proto->n_dependency; d++) {
            if (file_find(reflection, proto->dependency[d]) < 0) {
                nd_errmsg_set(msg, "%s imports %s, which is not among the server's files",
                              proto->name, proto->dependency[d]);
                return ND_ERR_INVALID_ARGUMENT;
            }
        }
    }
    return ND_OK;
}

enum nd_err nd_rpc_reflection_new(struct nd_rpc_reflection **out,
                                  const struct nd_rpc_file *const *files, size_t count,
                                  struct nd_errmsg *msg)
{
    struct nd_rpc_reflection *reflection = nd_xcalloc(1, sizeof *reflection);
    enum nd_err err = ND_OK;

    reflection->files = nd_xcalloc(count + 1, sizeof(*reflection->files));
    reflection->protos = nd_xcalloc(count + 1, sizeof(*reflection->protos));
    for (size_t i = 0; i < count && err == ND_OK; i++) {
        reflection->files[i] = files[i];
        reflection->protos[i] = google__protobuf__file_descriptor_proto__unpack(
            NULL, files[i]->descriptor_size, files[i]->descriptor);
        if (reflection->protos[i] == NULL) {
            nd_errmsg_set(msg, "descriptor of %s cannot be decoded", files[i]->name);
            err = ND_ERR_INVALID_ARGUMENT;
        } else {
            reflection->count += 1;
        }
    }
    if (err == ND_OK) {
        err = imports_check(reflection, msg);
    }
    if (err != ND_OK) {
        nd_rpc_reflection_free(reflection);
        return err;
    }
    services_list(reflection);
    *out = reflection;
    return ND_OK;
}

void nd_rpc_reflection_free(struct nd_rpc_reflection *reflection)
{
    for (size_t i = 0; i < reflection->count; i++) {
        google__protobuf__file_descriptor_proto__free_unpacked(reflection->protos[i], NULL);
    }
    for (size_t i = 0; i < reflection->services_count; i++) {
        nd_free(reflection->services[i].name);
    }
    nd_free(reflection->services);
    nd_free(reflection->services_list);
    nd_free(reflection->files);
    nd_free(reflection->protos);
    nd_free(reflection);
}

/* --- symbols --- */

/* Does `symbol` begin with the segment `name`? The rest, after its dot or slash, goes to *rest_out.
 */
static bool segment(const char *symbol, const char *name, const char **rest_out)
{
    size_t size = strlen(name);

    if (strncmp(symbol, name, size) != 0 ||
        (symbol[size] != '\0' && symbol[size] != '.' && symbol[size] != '/')) {
        return false;
    }
    *rest_out = symbol[size] == '\0' ? symbol + size : symbol + size + 1;
    return true;
}

static bool enums_have(enum_proto *const *enums, size_t count, const char *symbol)
{
    const char *rest;

    for (size_t i = 0; i < count; i++) {
        if (segment(symbol, enums[i]->name, &rest)) {
            return true;
        }
    }
    return false;
}

static const message_proto *message_find(message_proto *const *messages, size_t count,
                                         const char *symbol, const char **rest_out)
{
    for (size_t i = 0; i < count; i++) {
        if (segment(symbol, messages[i]->name, rest_out)) {
            return messages[i];
        }
    }
    return NULL;
}

/* `symbol` names the message, or something in it: one step down for each segment. */
static bool message_has(const message_proto *message, const char *symbol)
{
    while (*symbol != '\0') {
        const char *rest = symbol;
        const message_proto *inner =
            message_find(message->nested_type, message->n_nested_type, symbol, &rest);
        if (inner == NULL) {
            for (size_t i = 0; i < message->n_field; i++) {
                if (strcmp(message->field[i]->name, symbol) == 0) {
                    return true;
                }
            }
            return enums_have(message->enum_type, message->n_enum_type, symbol);
        }
        message = inner;
        symbol = rest;
    }
    return true;
}

static bool service_has(const service_proto *service, const char *method)
{
    if (*method == '\0') {
        return true;
    }
    for (size_t i = 0; i < service->n_method; i++) {
        if (strcmp(service->method[i]->name, method) == 0) {
            return true;
        }
    }
    return false;
}

static bool file_has(const file_proto *proto, const char *symbol)
{
    const char *rest = symbol, *inner = symbol;

    if (!segment(symbol, proto->package, &rest) || *rest == '\0') {
        return false;
    }
    const message_proto *message =
        message_find(proto->message_type, proto->n_message_type, rest, &inner);
    if (message != NULL) {
        return message_has(message, inner);
    }
    for (size_t i = 0; i < proto->n_service; i++) {
        if (segment(rest, proto->service[i]->name, &inner)) {
            return service_has(proto->service[i], inner);
        }
    }
    return enums_have(proto->enum_type, proto->n_enum_type, rest);
}

static int symbol_find(const struct nd_rpc_reflection *reflection, const char *symbol)
{
    for (size_t i = 0; i < reflection->count; i++) {
        if (file_has(reflection->protos[i], symbol)) {
            return (int)i;
        }
    }
    return -1;
}

/* --- answering --- */

/* The file and all that it imports, each once; `list` has room for all files. */
static size_t closure_of(const struct nd_rpc_reflection *reflection, int file, int *list)
{
    size_t count = 1;

    list[0] = file;
    for (size_t i = 0; i < count; i++) {
        const file_proto *proto = reflection->protos[list[i]];
        for (size_t d = 0; d < proto->n_dependency; d++) {
            int found = file_find(reflection, proto->dependency[d]);
            bool listed = false;
            for (size_t l = 0; l < count; l++) {
                listed |= list[l] == found;
            }
            if (!listed) {
                list[count++] = found;
            }
        }
    }
    return count;
}

static void answer_error(struct nd_rpc_call *call, reflection_response *response, int code,
                         char *text)
{
    error_response error = GRPC__REFLECTION__V1__ERROR_RESPONSE__INIT;

    error.error_code = code;
    error.error_message = text;
    response->message_response_case = RESPONSE(ERROR_RESPONSE);
    response->error_response = &error;
    nd_rpc_call_send(call, &response->base);
}

static void answer_file(struct nd_rpc_call *call, reflection_response *response, int file)
{
    const struct nd_rpc_reflection *reflection = nd_rpc_call_server(call)->reflection;
    struct nd_arena *arena = nd_rpc_call_arena(call);
    files_response files = GRPC__REFLECTION__V1__FILE_DESCRIPTOR_RESPONSE__INIT;
    int *list = nd_arena_alloc(arena, reflection->count * sizeof *list);
    ProtobufCBinaryData *bytes = nd_arena_alloc(arena, reflection->count * sizeof *bytes);

    if (file < 0 || list == NULL || bytes == NULL) {
        char text[] = "no such file or symbol";
        answer_error(call, response, GRPC_STATUS_NOT_FOUND, text);
        return;
    }
    files.n_file_descriptor_proto = closure_of(reflection, file, list);
    files.file_descriptor_proto = bytes;
    for (size_t i = 0; i < files.n_file_descriptor_proto; i++) {
        const struct nd_rpc_file *found = reflection->files[list[i]];
        bytes[i].data = (uint8_t *)(uintptr_t)found->descriptor; /* packing only reads it */
        bytes[i].len = found->descriptor_size;
    }
    response->message_response_case = RESPONSE(FILE_DESCRIPTOR_RESPONSE);
    response->file_descriptor_response = &files;
    nd_rpc_call_send(call, &response->base);
}

static void answer_services(struct nd_rpc_call *call, reflection_response *response)
{
    const struct nd_rpc_reflection *reflection = nd_rpc_call_server(call)->reflection;
    list_response list = GRPC__REFLECTION__V1__LIST_SERVICE_RESPONSE__INIT;

    list.n_service = reflection->services_count;
    list.service = reflection->services_list;
    response->message_response_case = RESPONSE(LIST_SERVICES_RESPONSE);
    response->list_services_response = &list;
    nd_rpc_call_send(call, &response->base);
}

static void reflection_message(struct nd_rpc_call *call, struct nd_slice bytes)
{
    const struct nd_rpc_reflection *reflection = nd_rpc_call_server(call)->reflection;
    const reflection_request *request = nd_rpc_call_decode(
        call, &grpc__reflection__v1__server_reflection_request__descriptor, bytes);
    reflection_response response = GRPC__REFLECTION__V1__SERVER_REFLECTION_RESPONSE__INIT;
    char unsupported[] = "proto3 files have no extensions";

    if (request == NULL) {
        nd_rpc_call_fail(call, ND_ERR_INVALID_ARGUMENT, "not a ServerReflectionRequest");
        return;
    }
    response.valid_host = request->host;
    response.original_request = (reflection_request *)(uintptr_t)request;
    switch (request->message_request_case) {
    case REQUEST(FILE_BY_FILENAME):
        answer_file(call, &response, file_find(reflection, request->file_by_filename));
        break;
    case REQUEST(FILE_CONTAINING_SYMBOL):
        answer_file(call, &response, symbol_find(reflection, request->file_containing_symbol));
        break;
    case REQUEST(LIST_SERVICES): answer_services(call, &response); break;
    case REQUEST(FILE_CONTAINING_EXTENSION):
    case REQUEST(ALL_EXTENSION_NUMBERS_OF_TYPE):
    case REQUEST(_NOT_SET):
    default: answer_error(call, &response, GRPC_STATUS_NOT_FOUND, unsupported); break;
    }
}

static void reflection_end(struct nd_rpc_call *call)
{
    nd_rpc_call_finish(call, GRPC_STATUS_OK, NULL);
}

/* A question is read only after the answer to the one before it was handed over: what a client can
 * make us queue stays small. */
#define REFLECTION_METHOD(version)                                                                 \
    {                                                                                              \
        .path = GRPC_REFLECTION_##version##_SERVER_REFLECTION_SERVER_REFLECTION_INFO_PATH,         \
        .kind = GRPC_REFLECTION_##version##_SERVER_REFLECTION_SERVER_REFLECTION_INFO_KIND,         \
        .message_bytes_max = 65536, .armed = 1, .on_message = reflection_message,                  \
        .on_drained = nd_rpc_call_read_next, .on_half_close = reflection_end,                      \
        .on_cancel = reflection_end, .manual_read = true,                                          \
    }

const struct nd_rpc_method nd_rpc_reflection_v1 = REFLECTION_METHOD(V1);
const struct nd_rpc_method nd_rpc_reflection_v1alpha = REFLECTION_METHOD(V1ALPHA);
