/* JSON answers: the objects of docs/HTTP_API.md, members in its order, one line. Pure. */
#ifndef ND_JSON_OUT_H
#define ND_JSON_OUT_H

#include "storage/base/buf.h"

#include "proto/narad/v1/admin.pb-c.h"
#include "proto/narad/v1/broker.pb-c.h"

/* A JSON string of any bytes: those that are not UTF-8 become U+FFFD. NULL is "". */
void nd_json_put_text(struct nd_buf *out, const char *text);

/* `role`: with that member (a create leaves it out). */
void nd_json_put_topic(struct nd_buf *out, const Narad__V1__Topic *topic, bool role);
void nd_json_put_topic_details(struct nd_buf *out, const Narad__V1__GetTopicResponse *response);
void nd_json_put_topics(struct nd_buf *out, const Narad__V1__ListTopicsResponse *response);

/* `topic`: consumed from. The payload is copied as it is where it is JSON. */
void nd_json_put_message(struct nd_buf *out, const char *topic, const Narad__V1__Message *message);

void nd_json_put_user(struct nd_buf *out, const Narad__V1__User *user);
void nd_json_put_users(struct nd_buf *out, const Narad__V1__ListUsersResponse *response);

#endif
