/* A protoc plugin: protoc hands it a CodeGeneratorRequest on standard input and takes a
 * CodeGeneratorResponse from standard output. It keeps what protoc-c drops; see proto/README.md. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "google/protobuf/compiler/plugin.pb-c.h"
#include "proto/plugin/write.h"

typedef Google__Protobuf__Compiler__CodeGeneratorRequest generator_request;
typedef Google__Protobuf__Compiler__CodeGeneratorResponse generator_response;
typedef Google__Protobuf__Compiler__CodeGeneratorResponse__File generated_file;

static void die(const char *what)
{
    fprintf(stderr, "protoc-gen-nd: %s\n", what);
    exit(1);
}

static generator_request *request_read(FILE *in)
{
    size_t size = 0, capacity = 1 << 16, got;
    uint8_t *bytes = malloc(capacity);

    while (bytes != NULL && (got = fread(bytes + size, 1, capacity - size, in)) > 0) {
        size += got;
        if (size == capacity) {
            capacity *= 2;
            bytes = realloc(bytes, capacity);
        }
    }
    if (bytes == NULL) {
        die("out of memory");
    }
    generator_request *request =
        google__protobuf__compiler__code_generator_request__unpack(NULL, size, bytes);
    if (request == NULL) {
        die("standard input is no CodeGeneratorRequest");
    }
    free(bytes);
    return request;
}

static Google__Protobuf__FileDescriptorProto *request_file(const generator_request *request,
                                                           const char *name)
{
    for (size_t i = 0; i < request->n_proto_file; i++) {
        if (strcmp(request->proto_file[i]->name, name) == 0) {
            return request->proto_file[i];
        }
    }
    die("a file to generate is not among the files");
    return NULL;
}

static void response_add(generator_response *response, char *name, char *content)
{
    generated_file *file = malloc(sizeof *file);

    if (file == NULL) {
        die("out of memory");
    }
    google__protobuf__compiler__code_generator_response__file__init(file);
    file->name = name;
    file->content = content;
    response->file[response->n_file++] = file;
}

static void response_write(const generator_response *response, FILE *out)
{
    size_t size = google__protobuf__compiler__code_generator_response__get_packed_size(response);
    uint8_t *bytes = malloc(size);

    if (bytes == NULL) {
        die("out of memory");
    }
    google__protobuf__compiler__code_generator_response__pack(response, bytes);
    if (fwrite(bytes, 1, size, out) != size || fflush(out) != 0) {
        die("cannot write");
    }
    free(bytes);
}

int main(void)
{
    generator_request *request = request_read(stdin);
    generator_response *response = malloc(sizeof *response);

    if (response == NULL) {
        die("out of memory");
    }
    google__protobuf__compiler__code_generator_response__init(response);
    response->file = calloc(2 * request->n_file_to_generate + 1, sizeof *response->file);
    if (response->file == NULL) {
        die("out of memory");
    }
    for (size_t i = 0; i < request->n_file_to_generate; i++) {
        Google__Protobuf__FileDescriptorProto *file =
            request_file(request, request->file_to_generate[i]);
        response_add(response, plugin_output_name(file->name, ".nd.h"), plugin_write_header(file));
        response_add(response, plugin_output_name(file->name, ".nd.c"), plugin_write_source(file));
    }
    response_write(response, stdout);
    google__protobuf__compiler__code_generator_response__free_unpacked(response, NULL);
    google__protobuf__compiler__code_generator_request__free_unpacked(request, NULL);
    return 0;
}
