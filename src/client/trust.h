/* What https is verified by, and what the client shows of itself: read and checked when a client is opened. */
#ifndef GBC_TRUST_H
#define GBC_TRUST_H

#include <gnutls/gnutls.h>

#include "client/client.h"

/* Sets what the options or the environment name. 0, or -1 with BAD_ARGUMENT or NO_MEMORY. */
int gbc_trust_take(struct gbc_settings *set, const struct gpubuf_options *options, struct gpubuf_error *err);
void gbc_trust_done(struct gbc_settings *set);

/* The same as GnuTLS takes it, with the system's authorities where none are named. The caller's. 0, or -1 with err. */
int gbc_trust_load(const struct gbc_settings *set, gnutls_certificate_credentials_t *ret, struct gpubuf_error *err);

#endif
