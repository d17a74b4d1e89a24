/* TLS of a client: what https is verified by and what the client shows of itself, read and checked when it is opened;
 * and why there is no connection by TLS, for which the other end is probed over a connection of its own. */
#ifndef GBC_TRUST_H
#define GBC_TRUST_H

#include "client/internal.h"

/* Sets what the options or the environment name. 0, or -1 with BAD_ARGUMENT or NO_MEMORY. */
int gbc_trust_take(struct gbc_settings *set, const struct gpubuf_options *options, struct gpubuf_error *err);
void gbc_trust_done(struct gbc_settings *set);

/* After a failed attempt by https, from the other end: -1 with TLS_FAILED if a certificate or the scheme of the URL is
 * the cause; else 0. certain: TLS is the cause in any case, which is said by libcurl's words `said`. told: the answer
 * speaks of a certificate. */
int gbc_trust_explain(const struct gbc_settings *set, bool certain, bool told, const char *said,
                      struct gpubuf_error *err);
/* After one by http: -1 with TLS_FAILED if the other end speaks TLS; else 0. */
int gbc_trust_explain_plain(const struct gbc_settings *set, struct gpubuf_error *err);

#endif
