#include "clients/c/src/basic.h"

#include <stdio.h>

#include "storage/base/base64.h"
#include "storage/base/wipe.h"

void basic_free(char *header)
{
    nd_free_secret(header);
}

char *basic_new(const char *username, const char *password)
{
    size_t size = strlen(username) + 1 + strlen(password);
    char *pair = nd_xmalloc(size + 1);
    char *header = nd_xmalloc(6 + ND_BASE64_TEXT_SIZE(size));

    snprintf(pair, size + 1, "%s:%s", username,
             password); /* in place: asprintf would leave parts */
    memcpy(header, "Basic ", 6);
    nd_base64_encode(nd_slice_make(pair, size), header + 6);
    nd_free_secret(pair);
    return header;
}
