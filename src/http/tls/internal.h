/* Inside src/http/tls. */
#ifndef GB_HTTP_TLS_INTERNAL_H
#define GB_HTTP_TLS_INTERNAL_H

#include <gnutls/gnutls.h>
#include <stdatomic.h>

#include "http/tls/context.h"

struct gb_tls_context {
    atomic_uint refs;
    gnutls_certificate_credentials_t credentials;
    gnutls_priority_t priority;
    gnutls_datum_t ticket_key; /* GnuTLS derives keys from it that change with time */
    bool asks_clients;
    int64_t expiry_s;
};

#endif
