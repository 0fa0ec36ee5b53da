#include "storage/base/err.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void nd_assert_failed(const char *condition, const char *file, int line)
{
    (void)fprintf(stderr, "%s:%d: assertion failed: %s\n", file, line, condition);
    (void)fflush(stderr);
    abort();
}

const char *nd_err_text(enum nd_err err)
{
    switch (err) {
    case ND_OK: return "ok";
#define X(name, grpc, http, text)                                                                  \
    case ND_ERR_##name: return text;
        ND_ERR_MAP(X)
#undef X
    case ND_ERR_COUNT: break;
    }
    ND_UNREACHABLE();
}

const char *nd_err_name(enum nd_err err)
{
    switch (err) {
    case ND_OK: return "OK";
#define X(name, grpc, http, text)                                                                  \
    case ND_ERR_##name: return #name;
        ND_ERR_MAP(X)
#undef X
    case ND_ERR_COUNT: break;
    }
    ND_UNREACHABLE();
}

enum nd_err nd_err_by_name(const char *name)
{
    for (int err = ND_OK; err < ND_ERR_COUNT; err++) {
        if (strcmp(nd_err_name((enum nd_err)err), name) == 0) {
            return (enum nd_err)err;
        }
    }
    return ND_ERR_INTERNAL;
}

int nd_err_grpc_status(enum nd_err err)
{
    switch (err) {
    case ND_OK: return 0;
#define X(name, grpc, http, text)                                                                  \
    case ND_ERR_##name: return grpc;
        ND_ERR_MAP(X)
#undef X
    case ND_ERR_COUNT: break;
    }
    ND_UNREACHABLE();
}

int nd_err_http_status(enum nd_err err)
{
    switch (err) {
    case ND_OK: return 200;
#define X(name, grpc, http, text)                                                                  \
    case ND_ERR_##name: return http;
        ND_ERR_MAP(X)
#undef X
    case ND_ERR_COUNT: break;
    }
    ND_UNREACHABLE();
}

/* A cut may not leave half a UTF-8 character: these texts travel in protobuf strings. */
static void cut_at_character(char *text, size_t size)
{
    size_t end = size;

    while (end > 0 && ((unsigned char)text[end - 1] & 0xc0) == 0x80) {
        end -= 1;
    }
    if (end == 0 || (unsigned char)text[end - 1] < 0xc0) {
        return; /* ends in ASCII, or is no UTF-8 at all */
    }
    unsigned char lead = (unsigned char)text[end - 1];
    size_t whole = lead >= 0xf0 ? 4 : lead >= 0xe0 ? 3 : 2;
    if (size - (end - 1) < whole) {
        text[end - 1] = '\0';
    }
}

static ND_PRINTF(2, 0) void format_cut(struct nd_errmsg *msg, const char *format, va_list args)
{
    int size = vsnprintf(msg->text, sizeof msg->text, format, args);

    if (size < 0) {
        msg->text[0] = '\0';
    } else if ((size_t)size >= sizeof msg->text) {
        cut_at_character(msg->text, sizeof msg->text - 1);
    }
}

void nd_errmsg_set(struct nd_errmsg *msg, const char *format, ...)
{
    va_list args;

    if (msg == NULL) {
        return;
    }
    va_start(args, format);
    format_cut(msg, format, args);
    va_end(args);
}

void nd_errmsg_wrap(struct nd_errmsg *msg, const char *format, ...)
{
    struct nd_errmsg inner;
    va_list args;

    if (msg == NULL) {
        return;
    }
    inner = *msg;
    va_start(args, format);
    format_cut(msg, format, args);
    va_end(args);

    size_t used = strlen(msg->text);
    int size = snprintf(msg->text + used, sizeof msg->text - used, ": %s", inner.text);
    if (size >= 0 && (size_t)size >= sizeof msg->text - used) {
        cut_at_character(msg->text, sizeof msg->text - 1);
    }
}
