/* The PEM files of a TLS end, read whole and checked with OpenSSL before the core gets them: the
 * core would log what is wrong and go on without. Private to proto/rpc. */
#ifndef ND_RPC_TLS_FILES_H
#define ND_RPC_TLS_FILES_H

#include "storage/base/err.h"

enum { ND_RPC_TLS_FILE_BYTES_MAX = 1 << 20 };

/* What the files said. Texts end with a NUL and hold no other. */
struct nd_rpc_pem {
    char *cert, *key, *ca;             /* NULL: not given */
    char subject[256];                 /* of the own certificate, RFC 2253 */
    char not_after[32];                /* of the first certificate of the chain to expire */
    int64_t not_before_s, not_after_s; /* Unix seconds: when all of the chain is valid */
    bool key_is_shared;                /* others than owner and group may read the key's file */
};

/* Certificate and key belong together; each file NULL or "" when there is none. INVALID_ARGUMENT,
 * IO: `msg` names the file. Dates are not judged. */
ND_CHECKED enum nd_err nd_rpc_pem_read(struct nd_rpc_pem *out, const char *cert_file,
                                       const char *key_file, const char *ca_file,
                                       struct nd_errmsg *msg);
/* Overwrites the key. */
void nd_rpc_pem_release(struct nd_rpc_pem *pem);
/* Where this system keeps the authorities it trusts: SSL_CERT_FILE, or one of the usual files.
 * NULL: nowhere. */
const char *nd_rpc_system_ca_file(void);

#endif
