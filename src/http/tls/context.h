/* What TLS connections begin with: certificates, keys, the authority of clients, the key of session tickets. */
#ifndef GB_HTTP_TLS_CONTEXT_H
#define GB_HTTP_TLS_CONTEXT_H

#include <gnutls/gnutls.h>
#include <gnutls/x509.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "http/http.h"

/* Files in PEM: the server's certificate with those between it and its authority, and its key. */
struct gb_tls_pair_files {
    const char *cert;
    const char *key;
};

struct gb_tls_config {
    const struct gb_tls_pair_files *pairs; /* a client that asks for a name gets the one that has it, else the first */
    size_t pair_count;
    const char *client_ca; /* PEM: who signs clients' certificates; NULL: clients are not asked for one */
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

/* What a client's certificate says. Inside src/http/tls. */

struct gb_tls_certificate;

/* Before the handshake: a client whose certificates have keys that are too large to compute with is refused before its
 * signature is checked. */
void gb_tls_certificate_guard(gnutls_session_t session);

/* After the handshake: checks the certificate against the authorities of the session's credentials. *ret: NULL without
 * one. Returns 0; -1: it is not to be trusted, for the reason of *ret_why. */
int gb_tls_certificate_read(gnutls_session_t session, struct gb_tls_certificate **ret,
                            gnutls_alert_description_t *ret_why);

/* Verifies it again, by the authorities of other credentials. */
void gb_tls_certificate_again(gnutls_session_t session, gnutls_certificate_credentials_t credentials,
                              struct gb_tls_certificate *certificate);

/* Reference counted. All take NULL. */
const struct gb_http_certificate *gb_tls_certificate_take(struct gb_tls_certificate *certificate);
void gb_tls_certificate_drop(struct gb_tls_certificate *certificate);
void gb_tls_certificate_unref(const struct gb_http_certificate *certificate);

/* Inside src/http/tls. */

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

/* After a client's first message: GnuTLS finds a certificate by its names alone, not by one that stands for many
 * (*.example.org). For the session's credentials. Returns 0. */
int gb_tls_choose_name(gnutls_session_t session, const struct gb_tls_context *context);

#endif
