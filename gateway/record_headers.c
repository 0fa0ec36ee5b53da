#include "gateway/record_headers.h"

#include <stdio.h>

static const char prefix[] = "X-Narad-Header-";

enum { COUNT_MAX = 64, NAME_MAX_BYTES = 64 };

struct collect {
    struct nd_arena *arena;
    Narad__V1__Header **list;
    size_t count;
    bool too_many, no_memory;
    char bad_name[NAME_MAX_BYTES + 8];
};

/* Lower case; false: not a name. */
static bool put_name(char *out, struct nd_slice name)
{
    for (size_t i = 0; i < name.size; i++) {
        uint8_t c = name.data[i];
        c = c >= 'A' && c <= 'Z' ? (uint8_t)(c - 'A' + 'a') : c;
        if (!((c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-')) {
            return false;
        }
        out[i] = (char)c;
    }
    out[name.size] = '\0';
    return name.size > 0;
}

static void each(void *arg, struct nd_slice name, struct nd_slice value)
{
    struct collect *c = arg;
    struct nd_slice rest =
        nd_slice_make(name.data + sizeof prefix - 1, name.size - (sizeof prefix - 1));
    if (c->count == COUNT_MAX) {
        c->too_many = true;
        return;
    }
    char *text = nd_arena_alloc(c->arena, NAME_MAX_BYTES + 1);
    Narad__V1__Header *header = nd_arena_alloc(c->arena, sizeof *header);
    if (text == NULL || header == NULL) {
        c->no_memory = true;
        return;
    }
    if (rest.size > NAME_MAX_BYTES || !put_name(text, rest)) {
        snprintf(c->bad_name, sizeof c->bad_name, "%.*s", (int)ND_MIN(rest.size, (size_t)64),
                 (const char *)rest.data);
        return;
    }
    narad__v1__header__init(header);
    header->name = text;
    header->value.data = (uint8_t *)(uintptr_t)value.data;
    header->value.len = value.size;
    c->list[c->count++] = header;
}

enum nd_err nd_record_headers_get(const struct nd_http_request *request, struct nd_arena *arena,
                                  Narad__V1__Record *record, struct nd_errmsg *msg)
{
    Narad__V1__Header *list[COUNT_MAX];
    struct collect c = {.arena = arena, .list = list, .bad_name = {'\1'}};
    nd_http_headers(request, prefix, each, &c);
    if (c.bad_name[0] != '\1') {
        nd_errmsg_set(msg, "invalid header %s%s: the name must match [a-z0-9-]{1,64}", prefix,
                      c.bad_name);
        return ND_ERR_INVALID_ARGUMENT;
    }
    if (c.too_many) {
        nd_errmsg_set(msg, "too many %s headers: at most %d", prefix, COUNT_MAX);
        return ND_ERR_INVALID_ARGUMENT;
    }
    if (c.count > 0) {
        record->headers = nd_arena_alloc(arena, c.count * sizeof *record->headers);
        if (record->headers != NULL) {
            memcpy(record->headers, list, c.count * sizeof *record->headers);
            record->n_headers = c.count;
        }
        c.no_memory = c.no_memory || record->headers == NULL;
    }
    if (c.no_memory) {
        nd_errmsg_set(msg, "the %s headers are too large", prefix);
        return ND_ERR_INVALID_ARGUMENT;
    }
    return ND_OK;
}

static bool is_blank(uint8_t c)
{
    return c == ' ' || c == '\t';
}

static bool travels(struct nd_slice value)
{
    if (value.size > 0 && (is_blank(value.data[0]) || is_blank(value.data[value.size - 1]))) {
        return false;
    }
    for (size_t i = 0; i < value.size; i++) {
        if ((value.data[i] < 0x20 && value.data[i] != '\t') || value.data[i] == 0x7f) {
            return false;
        }
    }
    return true;
}

void nd_record_headers_put(struct nd_http_request *request, const Narad__V1__Message *message)
{
    enum { VALUE_MAX = 16 << 10 }; /* of all headers of a record together */
    char name[sizeof prefix + NAME_MAX_BYTES], value[VALUE_MAX + 1];
    for (size_t i = 0; i < message->n_headers; i++) {
        const Narad__V1__Header *header = message->headers[i];
        if (strlen(header->name) > NAME_MAX_BYTES || header->value.len > VALUE_MAX ||
            !travels(nd_slice_make(header->value.data, header->value.len))) {
            continue;
        }
        snprintf(name, sizeof name, "%s%s", prefix, header->name);
        memcpy(value, header->value.data == NULL ? (const uint8_t *)"" : header->value.data,
               header->value.len);
        value[header->value.len] = '\0';
        nd_http_set_header(request, name, value);
    }
}
