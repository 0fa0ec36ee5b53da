/* Strict JSON request bodies (docs/HTTP_API.md): exactly one object, known members only, names in
 * any letter case, the last of a name wins, null counts as absent. Values are spans of the body.
 * Pure.
 *
 *   struct nd_json_member members[] = {{"name", ND_JSON_STRING}, {"partitions", ND_JSON_INT}};
 *   err = nd_json_read(body, members, 2, arena, &msg);   // "invalid json: ..."
 *   if (members[0].present) … members[0].text */
#ifndef ND_JSON_IN_H
#define ND_JSON_IN_H

#include "storage/base/arena.h"
#include "storage/base/err.h"
#include "storage/base/slice.h"

#include "gateway/json_scan.h"

enum nd_json_type {
    ND_JSON_STRING, /* text: decoded, in the arena, NUL-terminated behind its size */
    ND_JSON_INT,    /* number */
    ND_JSON_ANY,    /* raw: as written; also null */
    ND_JSON_ARRAY,  /* raw: as written */
};

struct nd_json_member {
    const char *name;
    enum nd_json_type type;
    bool present; /* and not null, but for ND_JSON_ANY */
    struct nd_slice text, raw;
    int64_t number;
};

/* INVALID_ARGUMENT with the texts of docs/HTTP_API.md, "invalid json: " in front. */
ND_CHECKED enum nd_err nd_json_read(struct nd_slice body, struct nd_json_member *members,
                                    size_t count, struct nd_arena *arena, struct nd_errmsg *msg);
/* Walk the elements of an array that nd_json_read found: false after the last. `at_io` starts at 0.
 */
bool nd_json_next(struct nd_slice array, size_t *at_io, struct nd_slice *element_out);
/* One value on its own: a string, decoded. INVALID_ARGUMENT: something else. */
ND_CHECKED enum nd_err nd_json_string(struct nd_slice raw, struct nd_arena *arena,
                                      struct nd_slice *out, struct nd_errmsg *msg);

#endif
