/* Certificates of the HTTP listener (GnuTLS, TLS 1.3 only). The files are read into a counted set;
 * a connection keeps the set that it began with, so that a reload disturbs nobody. @thread any */
#ifndef ND_HTTP_TLS_H
#define ND_HTTP_TLS_H

#include "storage/base/err.h"

struct nd_tls;
struct nd_tls_files; /* one reading of them */

/* libmicrohttpd's names of what it cannot do without. */
#define ND_TLS_PRIORITIES "NORMAL:-VERS-ALL:+VERS-TLS1.3"

/* `client_ca` "": clients need no certificate. The paths are copied. INVALID_ARGUMENT: a file that
 * cannot be read or is none of its kind, a key of another certificate. */
ND_CHECKED enum nd_err nd_tls_new(struct nd_tls **out, const char *cert_file, const char *key_file,
                                  const char *client_ca_file, struct nd_errmsg *msg);
void nd_tls_free(struct nd_tls *tls); /* NULL passes; sets in use stay */
/* On an error the old ones stay. */
ND_CHECKED enum nd_err nd_tls_reload(struct nd_tls *tls, struct nd_errmsg *msg);

/* The current files for a session (gnutls_session_t) before its handshake; NULL: it must not go on.
 */
struct nd_tls_files *nd_tls_attach(struct nd_tls *tls, void *session);
/* After the session's end. NULL passes. */
void nd_tls_detach(struct nd_tls_files *files);

/* For MHD_OPTION_HTTPS_CERT_CALLBACK, which the library insists on; never called, since every
 * session gets its own credentials. */
void *nd_tls_unused_callback(void);

#endif
