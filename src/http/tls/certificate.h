/* What a client's certificate says. Inside src/http/tls. */
#ifndef GB_HTTP_TLS_CERTIFICATE_H
#define GB_HTTP_TLS_CERTIFICATE_H

#include <gnutls/gnutls.h>

#include "http/http.h"

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

#endif
