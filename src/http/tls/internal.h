/* Inside src/http/tls. */
#ifndef GB_HTTP_TLS_INTERNAL_H
#define GB_HTTP_TLS_INTERNAL_H

#include <gnutls/gnutls.h>
#include <gnutls/x509.h>
#include <stdatomic.h>

#include "http/tls/context.h"

/* One certificate alone. */
struct gb_tls_named {
    gnutls_x509_crt_t cert;
    gnutls_certificate_credentials_t credentials;
};

struct gb_tls_context {
    atomic_uint refs;
    gnutls_certificate_credentials_t credentials; /* all */
    struct gb_tls_named *named;                   /* each; NULL: there is one */
    size_t named_count;
    struct gb_http_names names; /* of all */
    gnutls_priority_t priority;
    gnutls_datum_t ticket_key; /* GnuTLS derives keys from it that change with time */
    bool asks_clients;
    int64_t *expiry_s; /* of each pair */
    size_t pair_count; /* that were read */
};

/* Adds the DNS names of the certificate. Returns 0, or -1 if memory is exhausted. */
int gb_tls_add_names(struct gb_tls_context *context, gnutls_x509_crt_t cert);

/* After a client's first message: GnuTLS finds a certificate by its names alone, not by one that stands for many
 * (*.example.org). For the session's credentials. Returns 0. */
int gb_tls_choose_name(gnutls_session_t session, const struct gb_tls_context *context);

#endif
