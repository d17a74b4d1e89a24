/* Why there is no connection by TLS: looks at the other end with a connection of its own. */
#ifndef GBC_HTTP_PEER_H
#define GBC_HTTP_PEER_H

#include "client/http.h"

/* After a failed attempt. Returns -1 with TLS_FAILED if TLS, its certificates or the scheme of the URL are the cause;
 * 0 otherwise. last: no further attempt will be made; before that, http that was cut off may pass and is not looked
 * into. said: libcurl's words. */
int gbc_peer_explain(struct gbc_conn *conn, CURLcode code, bool last, const char *said, struct gpubuf_error *err);

/* After an answer of 400: the same for a URL of http and a listener of TLS, and for a proxy that wants a client's
 * certificate. */
int gbc_peer_other_scheme(struct gbc_conn *conn, struct gpubuf_error *err);

#endif
