#include "gateway/json_in.h"

#include "gateway/payload.h"
#include "gateway/query.h"

enum { SHOWN_MAX = 128 };

static enum nd_err invalid(struct nd_errmsg *msg, const char *text)
{
    nd_errmsg_set(msg, "invalid json: %s", text);
    return ND_ERR_INVALID_ARGUMENT;
}

static enum nd_err out_of_memory(struct nd_errmsg *msg)
{
    nd_errmsg_set(msg, "invalid json: out of memory");
    return ND_ERR_NO_MEMORY;
}

/* --- strings --- */

static uint32_t hex4(const uint8_t *at)
{
    uint32_t value = 0;

    for (int i = 0; i < 4; i++) {
        uint8_t byte = at[i];
        value = value << 4 | (uint32_t)(byte <= '9' ? byte - '0' : (byte | 0x20) - 'a' + 10);
    }
    return value;
}

static bool high_surrogate(uint32_t code)
{
    return code >= 0xd800 && code <= 0xdbff;
}

static bool low_surrogate(uint32_t code)
{
    return code >= 0xdc00 && code <= 0xdfff;
}

static size_t code_put(uint8_t *to, uint32_t code)
{
    if (code < 0x80) {
        to[0] = (uint8_t)code;
        return 1;
    }
    if (code < 0x800) {
        to[0] = (uint8_t)(0xc0 | code >> 6);
        to[1] = (uint8_t)(0x80 | (code & 63));
        return 2;
    }
    if (code < 0x10000) {
        to[0] = (uint8_t)(0xe0 | code >> 12);
        to[1] = (uint8_t)(0x80 | (code >> 6 & 63));
        to[2] = (uint8_t)(0x80 | (code & 63));
        return 3;
    }
    to[0] = (uint8_t)(0xf0 | code >> 18);
    to[1] = (uint8_t)(0x80 | (code >> 12 & 63));
    to[2] = (uint8_t)(0x80 | (code >> 6 & 63));
    to[3] = (uint8_t)(0x80 | (code & 63));
    return 4;
}

/* The escape at *at_io ("\n", "\u00e9", a pair of surrogates); a surrogate alone is U+FFFD. Never
 * more bytes than the escape has. */
static size_t escape_decode(struct nd_slice text, size_t *at_io, uint8_t *to)
{
    static const char letters[] = "bfnrt", bytes[] = "\b\f\n\r\t";
    uint8_t letter = text.data[*at_io + 1];
    const char *simple = strchr(letters, letter);

    if (letter != 'u') {
        *to = simple == NULL ? letter : (uint8_t)bytes[simple - letters];
        *at_io += 2;
        return 1;
    }
    uint32_t code = hex4(text.data + *at_io + 2);
    *at_io += 6;
    if (high_surrogate(code) && text.size - *at_io >= 6 && text.data[*at_io] == '\\' &&
        text.data[*at_io + 1] == 'u' && low_surrogate(hex4(text.data + *at_io + 2))) {
        code = 0x10000 + ((code - 0xd800) << 10) + (hex4(text.data + *at_io + 2) - 0xdc00);
        *at_io += 6;
    } else if (high_surrogate(code) || low_surrogate(code)) {
        code = 0xfffd;
    }
    return code_put(to, code);
}

/* What stands between the quotes of a valid string. */
static bool string_decode(struct nd_slice inside, struct nd_arena *arena, struct nd_slice *out)
{
    struct nd_buf mended;
    bool good = true;

    nd_buf_init(&mended, SIZE_MAX);
    if (!nd_utf8_valid(inside)) {
        nd_utf8_put_mended(&mended, inside);
        good = !nd_buf_failed(&mended);
        inside = nd_buf_slice(&mended);
    }
    uint8_t *to = good ? nd_arena_alloc(arena, inside.size + 1) : NULL;
    size_t size = 0;
    for (size_t at = 0; to != NULL && at < inside.size;) {
        if (inside.data[at] == '\\') {
            size += escape_decode(inside, &at, to + size);
        } else {
            to[size++] = inside.data[at++];
        }
    }
    nd_buf_release(&mended);
    if (to == NULL) {
        return false;
    }
    to[size] = '\0';
    *out = nd_slice_make(to, size);
    return true;
}

static struct nd_slice between_quotes(struct nd_slice raw)
{
    return nd_slice_make(raw.data + 1, raw.size - 2);
}

static enum nd_err string_get(struct nd_slice raw, struct nd_arena *arena, struct nd_slice *out,
                              struct nd_errmsg *msg)
{
    return string_decode(between_quotes(raw), arena, out) ? ND_OK : out_of_memory(msg);
}

/* --- values --- */

static const char *kind_of(struct nd_slice raw)
{
    switch (raw.data[0]) {
    case '{': return "object";
    case '[': return "array";
    case '"': return "string";
    case 't':
    case 'f': return "bool";
    case 'n': return "null";
    default: return "number";
    }
}

static const char *type_name(enum nd_json_type type)
{
    switch (type) {
    case ND_JSON_STRING: return "string";
    case ND_JSON_INT: return "int";
    case ND_JSON_ARRAY: return "array";
    case ND_JSON_ANY: break;
    }
    return "any";
}

static enum nd_err mismatch(const struct nd_json_member *member, struct nd_slice raw,
                            struct nd_errmsg *msg)
{
    const char *kind = kind_of(raw);
    bool number = strcmp(kind, "number") == 0;

    nd_errmsg_set(msg, "invalid json: json: cannot unmarshal %s%s%.*s into member %s of type %s",
                  kind, number ? " " : "", number ? (int)ND_MIN(raw.size, (size_t)SHOWN_MAX) : 0,
                  (const char *)raw.data, member->name, type_name(member->type));
    return ND_ERR_INVALID_ARGUMENT;
}

static enum nd_err member_set(struct nd_json_member *member, struct nd_slice raw,
                              struct nd_arena *arena, struct nd_errmsg *msg)
{
    uint8_t first = raw.data[0];

    member->present = first != 'n' || member->type == ND_JSON_ANY;
    member->raw = raw;
    if (!member->present) {
        return ND_OK;
    }
    switch (member->type) {
    case ND_JSON_ANY: return ND_OK;
    case ND_JSON_ARRAY: return first == '[' ? ND_OK : mismatch(member, raw, msg);
    case ND_JSON_STRING:
        return first == '"' ? string_get(raw, arena, &member->text, msg)
                            : mismatch(member, raw, msg);
    case ND_JSON_INT:
        /* A JSON number that is no integer, or too large a one, does not parse. */
        return nd_parse_int(raw, "", &member->number, NULL) == ND_OK ? ND_OK
                                                                     : mismatch(member, raw, msg);
    }
    ND_UNREACHABLE();
}

static bool same_letters(struct nd_slice name, const char *want)
{
    if (name.size != strlen(want)) {
        return false;
    }
    for (size_t i = 0; i < name.size; i++) {
        uint8_t a = name.data[i], b = (uint8_t)want[i];
        a = a >= 'A' && a <= 'Z' ? (uint8_t)(a | 0x20) : a;
        b = b >= 'A' && b <= 'Z' ? (uint8_t)(b | 0x20) : b;
        if (a != b) {
            return false;
        }
    }
    return true;
}

static enum nd_err unknown(struct nd_slice name, struct nd_errmsg *msg)
{
    struct nd_buf shown;

    nd_buf_init(&shown, 8 * SHOWN_MAX);
    name.size = ND_MIN(name.size, (size_t)SHOWN_MAX);
    nd_json_put_string(&shown, name);
    nd_errmsg_set(msg, "invalid json: json: unknown field %.*s", (int)shown.size,
                  (const char *)shown.data);
    nd_buf_release(&shown);
    return ND_ERR_INVALID_ARGUMENT;
}

/* The members of an object that was scanned: names and values follow each other as they must. */
static enum nd_err members_read(struct nd_slice object, struct nd_json_member *members,
                                size_t count, struct nd_arena *arena, struct nd_errmsg *msg)
{
    struct nd_slice name, raw;
    size_t at = nd_json_skip_blanks(object, 1);
    enum nd_err err = ND_OK;

    while (err == ND_OK && object.data[at] != '}') {
        at += object.data[at] == ',' ? 1 : 0;
        ND_ASSERT(nd_json_scan(object, &at, &name));
        at = nd_json_skip_blanks(object, at) + 1; /* the colon */
        ND_ASSERT(nd_json_scan(object, &at, &raw));
        at = nd_json_skip_blanks(object, at);
        name = between_quotes(name);
        if (memchr(name.data, '\\', name.size) != NULL && !string_decode(name, arena, &name)) {
            return out_of_memory(msg);
        }
        size_t i = 0;
        while (i < count && !same_letters(name, members[i].name)) {
            i++;
        }
        err = i == count ? unknown(name, msg) : member_set(&members[i], raw, arena, msg);
    }
    return err;
}

static enum nd_err syntax(struct nd_slice body, size_t at, const char *why, struct nd_errmsg *msg)
{
    if (at == body.size) {
        return invalid(msg, "unexpected EOF");
    }
    if (strcmp(why, "exceeded max depth") == 0) {
        return invalid(msg, why);
    }
    uint8_t byte = body.data[at];
    if (byte >= 0x20 && byte < 0x7f && byte != '\'') {
        nd_errmsg_set(msg, "invalid json: invalid character '%c' %s", byte, why);
    } else if (byte == '\'') {
        nd_errmsg_set(msg, "invalid json: invalid character '\\'' %s", why);
    } else {
        nd_errmsg_set(msg, "invalid json: invalid character '\\x%02x' %s", byte, why);
    }
    return ND_ERR_INVALID_ARGUMENT;
}

enum nd_err nd_json_read(struct nd_slice body, struct nd_json_member *members, size_t count,
                         struct nd_arena *arena, struct nd_errmsg *msg)
{
    struct nd_slice value;
    const char *why = "";
    size_t at = nd_json_skip_blanks(body, 0);

    for (size_t i = 0; i < count; i++) {
        members[i].present = false;
    }
    if (at == body.size) {
        return invalid(msg, "EOF");
    }
    if (!nd_json_scan_why(body, &at, &value, &why)) {
        return syntax(body, at, why, msg);
    }
    enum nd_err err = ND_OK;
    if (value.data[0] == '{') {
        err = members_read(value, members, count, arena, msg);
    } else if (value.data[0] != 'n') {
        nd_errmsg_set(msg, "invalid json: json: cannot unmarshal %s into an object",
                      kind_of(value));
        err = ND_ERR_INVALID_ARGUMENT;
    }
    if (err == ND_OK && nd_json_skip_blanks(body, at) < body.size) {
        err = invalid(msg, "multiple JSON values");
    }
    return err;
}

bool nd_json_next(struct nd_slice array, size_t *at_io, struct nd_slice *element_out)
{
    size_t at = nd_json_skip_blanks(array, *at_io == 0 ? 1 : *at_io);

    if (at < array.size && array.data[at] == ',') {
        at++;
    }
    if (at + 1 >= array.size || !nd_json_scan(array, &at, element_out)) {
        return false; /* the closing bracket */
    }
    *at_io = at;
    return true;
}

enum nd_err nd_json_string(struct nd_slice raw, struct nd_arena *arena, struct nd_slice *out,
                           struct nd_errmsg *msg)
{
    struct nd_slice value;
    size_t at = 0;

    if (!nd_json_scan(raw, &at, &value) || value.data[0] != '"' ||
        nd_json_skip_blanks(raw, at) < raw.size) {
        return invalid(msg, "json: cannot unmarshal a value that is no string");
    }
    return string_get(value, arena, out, msg);
}
