#include <strings.h>

#include "storage/base/alloc.h"

#include "gateway/http_impl.h"
#include "gateway/query.h"

/* The library forgives what lets two servers disagree about where a request ends: a bare LF as the
 * end of a line, a value that goes on in the next line (which it appends to the name), a NUL that
 * cuts a value, a bare CR. It splits a head in place, so that all of it can still be looked at:
 *
 *   GET\0/v1/topics\0HTTP/1.1\0\0Host\0localhost\0\0Accept\0*.*\0\0\0\0body
 *   method           version     name  value      name           ^ behind the head
 *
 * Each name must begin exactly two bytes (CR and LF, now NUL) behind the value before it, each
 * value right behind its name, and the head end where the library says that it ends. What was
 * folded, cut or ended otherwise does not. */

enum { LINE_END = 2 };

static bool refuse(struct nd_http_request *request, int status, const char *text)
{
    request->refusal = text;
    request->refusal_status = status;
    return false;
}

static bool is_token_byte(uint8_t byte)
{
    return (byte >= '0' && byte <= '9') || ((byte | 0x20) >= 'a' && (byte | 0x20) <= 'z') ||
           (byte != 0 && strchr("!#$%&'*+-.^_`|~", byte) != NULL);
}

static bool is_token(struct nd_slice text)
{
    for (size_t i = 0; i < text.size; i++) {
        if (!is_token_byte(text.data[i])) {
            return false;
        }
    }
    return text.size > 0;
}

/* What a value may hold: no control bytes but the tab. */
static bool is_value(struct nd_slice text)
{
    for (size_t i = 0; i < text.size; i++) {
        if ((text.data[i] < 0x20 && text.data[i] != '\t') || text.data[i] == 0x7f) {
            return false;
        }
    }
    return true;
}

/* --- collecting --- */

struct collect {
    struct nd_http_request *request;
    size_t room;
};

static enum MHD_Result field_count(void *arg, enum MHD_ValueKind kind, const char *name,
                                   const char *value)
{
    size_t *count = arg;

    (void)kind;
    (void)name;
    (void)value;
    *count += 1;
    return MHD_YES;
}

static enum MHD_Result field_add(void *arg, enum MHD_ValueKind kind, const char *name,
                                 size_t name_size, const char *value, size_t value_size)
{
    struct collect *collect = arg;
    struct nd_http_request *request = collect->request;

    (void)kind;
    if (request->fields_count == collect->room) {
        return MHD_NO;
    }
    request->fields[request->fields_count++] = (struct nd_http_field){
        nd_slice_make(name, name_size), nd_slice_make(value == NULL ? "" : value, value_size)};
    return MHD_YES;
}

static bool fields_read(struct nd_http_request *request)
{
    struct collect collect = {.request = request};

    (void)MHD_get_connection_values(request->mhd, MHD_HEADER_KIND, field_count, &collect.room);
    request->fields = nd_malloc(ND_MAX(collect.room, (size_t)1) * sizeof *request->fields);
    if (request->fields == NULL) {
        return refuse(request, 431, ND_HTTP_HEAD_TOO_LARGE);
    }
    (void)MHD_get_connection_values_n(request->mhd, MHD_HEADER_KIND, field_add, &collect);
    return true;
}

/* --- the layout --- */

static const uint8_t *end_of(struct nd_slice text)
{
    return text.data + text.size;
}

/* Right behind the name and its colon, blanks skipped. */
static bool value_follows(const struct nd_http_field *field)
{
    const uint8_t *at = end_of(field->name) + 1;

    if (field->value.data < at) {
        return false;
    }
    while (at < field->value.data && (*at == ' ' || *at == '\t')) {
        at++;
    }
    return at == field->value.data;
}

static bool layout_is_plain(const struct nd_http_request *request, const char *method,
                            const char *version)
{
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(request->mhd, MHD_CONNECTION_INFO_REQUEST_HEADER_SIZE);
    const uint8_t *head = (const uint8_t *)method;
    const uint8_t *line_end = (const uint8_t *)version + strlen(version);

    /* `target` was copied before the library decoded it in place. */
    if (method + strlen(method) + 1 + strlen(request->target) + 1 != version) {
        return false;
    }
    for (size_t i = 0; i < request->fields_count; i++) {
        const struct nd_http_field *field = &request->fields[i];
        if (field->name.data != line_end + LINE_END || !value_follows(field)) {
            return false;
        }
        line_end = end_of(field->value);
    }
    return info != NULL && line_end + 2 * LINE_END == head + info->header_size;
}

/* --- what it says --- */

static bool name_is(struct nd_slice name, const char *want)
{
    return name.size == strlen(want) && strncasecmp((const char *)name.data, want, name.size) == 0;
}

struct framing {
    size_t lengths, encodings, hosts, credentials;
    struct nd_slice length, encoding, expect;
};

static struct framing framing_of(const struct nd_http_request *request)
{
    struct framing framing = {.lengths = 0};

    for (size_t i = 0; i < request->fields_count; i++) {
        const struct nd_http_field *field = &request->fields[i];
        if (name_is(field->name, "Content-Length")) {
            framing.lengths++;
            framing.length = field->value;
        } else if (name_is(field->name, "Transfer-Encoding")) {
            framing.encodings++;
            framing.encoding = field->value;
        } else if (name_is(field->name, "Host")) {
            framing.hosts++;
        } else if (name_is(field->name, "Authorization")) {
            framing.credentials++;
        } else if (name_is(field->name, "Expect")) {
            framing.expect = field->value;
        }
    }
    return framing;
}

/* Digits and nothing else; the library has refused what passes 64 bits. */
static bool length_read(struct nd_slice text, uint64_t *out)
{
    uint64_t value = 0;

    for (size_t i = 0; i < text.size; i++) {
        uint8_t digit = (uint8_t)(text.data[i] - '0');
        if (digit > 9 || __builtin_mul_overflow(value, 10u, &value) ||
            __builtin_add_overflow(value, digit, &value)) {
            return false;
        }
    }
    *out = value;
    return text.size > 0;
}

static bool framing_read(struct nd_http_request *request)
{
    struct framing framing = framing_of(request);

    if (framing.lengths > 1) {
        return refuse(request, 400, "bad request: more than one Content-Length");
    }
    if (framing.lengths > 0 && framing.encodings > 0) {
        return refuse(request, 400, "bad request: Content-Length with Transfer-Encoding");
    }
    if (framing.encodings > 1 ||
        (framing.encodings == 1 && !name_is(framing.encoding, "chunked"))) {
        return refuse(request, 400, "bad request: Transfer-Encoding other than chunked");
    }
    if (framing.encodings > 0 && request->http_1_0) {
        return refuse(request, 400, "bad request: Transfer-Encoding in HTTP/1.0");
    }
    if (framing.lengths == 1 && !length_read(framing.length, &request->declared)) {
        return refuse(request, 400, "bad request: Content-Length is no number");
    }
    if (framing.hosts > 1 || (framing.hosts == 0 && !request->http_1_0)) {
        return refuse(request, 400,
                      framing.hosts > 1 ? "bad request: more than one Host"
                                        : "bad request: missing Host");
    }
    if (framing.credentials > 1) { /* whose request it is would hang on who reads it */
        return refuse(request, 400, "bad request: more than one Authorization");
    }
    if (framing.expect.data != NULL && !name_is(framing.expect, "100-continue")) {
        return refuse(request, 417, "expectation failed: only 100-continue is known");
    }
    request->chunked = framing.encodings > 0;
    return true;
}

static bool lines_are_good(struct nd_http_request *request)
{
    if (!is_token(request->method)) {
        return refuse(request, 400, "bad request: malformed method");
    }
    for (const char *at = request->target; *at != '\0'; at++) {
        if ((uint8_t)*at <= 0x20 || *at == 0x7f) {
            return refuse(request, 400, "bad request: blank or control byte in the path");
        }
    }
    for (size_t i = 0; i < request->fields_count; i++) {
        if (!is_token(request->fields[i].name)) {
            return refuse(request, 400, "bad request: malformed header name");
        }
        if (!is_value(request->fields[i].value)) {
            return refuse(request, 400, "bad request: control byte in a header value");
        }
    }
    return true;
}

bool nd_http_head_read(struct nd_http_request *request, const char *method, const char *version)
{
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(request->mhd, MHD_CONNECTION_INFO_REQUEST_HEADER_SIZE);

    request->method = nd_slice_str(method);
    request->conn->request_line = (uint8_t *)(uintptr_t)method;
    request->conn->bytes_seen += info == NULL ? 0 : info->header_size;
    request->http_1_0 = strcmp(version, "HTTP/1.0") == 0;
    if (info != NULL && info->header_size > request->conn->server->options.header_bytes_max) {
        return refuse(request, 431, ND_HTTP_HEAD_TOO_LARGE);
    }
    if (!fields_read(request) || !lines_are_good(request)) {
        return false;
    }
    if (!layout_is_plain(request, method, version)) {
        return refuse(request, 400,
                      "bad request: a line of the head that does not end with CR LF, is folded, "
                      "or holds a NUL");
    }
    return framing_read(request);
}
