#include "server/security/basic.h"

#include <strings.h>

#include "storage/base/base64.h"

static const char scheme[] = "basic";
enum { SCHEME_SIZE = sizeof scheme - 1 };

bool nd_basic_decode(struct nd_slice header, char *out, struct nd_credentials *parts)
{
    if (header.size <= SCHEME_SIZE ||
        strncasecmp((const char *)header.data, scheme, SCHEME_SIZE) != 0 ||
        header.data[SCHEME_SIZE] != ' ') {
        return false;
    }
    size_t at = SCHEME_SIZE, size = 0;
    while (at < header.size && header.data[at] == ' ') {
        at++;
    }
    struct nd_slice digits = nd_slice_make(header.data + at, header.size - at);
    if (!nd_base64_decode(digits, (uint8_t *)out, &size)) {
        return false;
    }
    const char *colon = memchr(out, ':', size);
    if (size == 0 || colon == NULL || memchr(out, '\0', size) != NULL) {
        return false;
    }
    size_t name_size = (size_t)(colon - out);
    parts->username = nd_slice_make(out, name_size);
    parts->password = nd_slice_make(colon + 1, size - name_size - 1);
    return true;
}
