/* What TLS connections begin with: certificates, keys, the authority of clients, the key of session tickets. */
#ifndef GB_HTTP_TLS_CONTEXT_H
#define GB_HTTP_TLS_CONTEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "http/http.h"

/* Files in PEM: the server's certificate with those between it and its authority, and its key. */
struct gb_tls_pair {
    const char *cert;
    const char *key;
};

struct gb_tls_config {
    const struct gb_tls_pair *pairs; /* a client that asks for a name gets the one that has it, else the first */
    size_t pair_count;
    const char *client_ca; /* PEM: who signs clients' certificates; NULL: none is asked for */
};

/* Reference counted; does not change. */
struct gb_tls_context;

/* Reads the files. Blocks on the disk. Returns 0, or -1 with an error that names the file and says what is wrong
 * with it. */
int gb_tls_context_new(const struct gb_tls_config *config, struct gb_tls_context **ret, struct gb_error *err);
struct gb_tls_context *gb_tls_context_ref(struct gb_tls_context *context);
void gb_tls_context_unref(struct gb_tls_context *context); /* NULL is accepted */

/* What its certificates are for. Lives as long as the context. */
const struct gb_http_names *gb_tls_context_names(const struct gb_tls_context *context);

/* When the certificate of that pair expires, in seconds since 1970. */
int64_t gb_tls_context_expiry(const struct gb_tls_context *context, size_t pair);

#endif
