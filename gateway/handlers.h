/* What the handle_* files share. */
#ifndef ND_GATEWAY_HANDLERS_H
#define ND_GATEWAY_HANDLERS_H

#include "storage/base/arena.h"
#include "storage/base/limits.h"

#include "gateway/errors.h"
#include "gateway/gateway.h"
#include "gateway/http.h"
#include "gateway/routes.h"

#define ND_BODY_TOO_LARGE "request body too large"
#define ND_NO_TOPIC       "topic not found"

/* The topic of the path as a C string. False: no topic can have that name. */
ND_CHECKED bool nd_path_topic(const struct nd_http_request *request,
                              char out[ND_TOPIC_NAME_SIZE_MAX + 1]);
bool nd_topic_name_good(struct nd_slice name, size_t size_max);
/* A C string in the arena; NUL bytes become U+FFFD, which no name may hold. */
char *nd_arena_text(struct nd_arena *arena, struct nd_slice text);
/* Of a request's body: room for what is decoded of it. */
void nd_body_arena_init(struct nd_arena *arena, const struct nd_http_request *request);

/* A call and what its reply is in HTTP. Static. */
struct nd_reply {
    struct nd_upstream_method method;
    struct nd_operation operation;
    int status;
    void (*put)(struct nd_buf *out, const void *reply); /* NULL: no body */
};
/* Call and answer. `message` is packed before the return. */
void nd_call_and_answer(struct nd_http_request *request, const struct nd_reply *reply,
                        const ProtobufCMessage *message);
/* The same; where the broker's refusal names UINT32_MAX, `given` was meant: see nd_clamp_u32(). */
void nd_call_and_answer_clamped(struct nd_http_request *request, const struct nd_reply *reply,
                                const ProtobufCMessage *message, int64_t given);

/* Give deliveries back that nobody receives. Before the answer. */
void nd_give_back(struct nd_http_request *request, const char *topic,
                  Narad__V1__Message *const *messages, size_t count);

static inline struct nd_upstream *nd_upstream_of(const struct nd_http_request *request)
{
    return nd_gateway_upstream(nd_http_gateway(request));
}

static inline bool nd_compat_3(const struct nd_http_request *request)
{
    return nd_gateway_options(nd_http_gateway(request))->compat_3;
}

static inline uint32_t nd_clamp_u32(int64_t value)
{
    return value < 0 ? 0 : (uint32_t)ND_MIN(value, (int64_t)UINT32_MAX);
}

#endif
