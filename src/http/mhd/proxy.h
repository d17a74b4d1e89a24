/* Connections that begin with a header of the PROXY protocol. On a loop's thread.
 *
 * The header is taken from the fresh socket before TLS and before libmicrohttpd. Until it is whole, the connection has
 * no place among the others: it waits here, with a deadline. */
#ifndef GB_HTTP_MHD_PROXY_H
#define GB_HTTP_MHD_PROXY_H

#include "http/mhd/loop.h"

struct sockaddr;

/* Continues with a connection whose header has been taken; from->from is the client's address. */
typedef void gb_proxied(struct gb_loop *loop, struct gb_handoff *handoff, const struct sockaddr *from);

/* Whether a connection from there has to begin with one. */
bool gb_proxy_expected(const struct gb_http_server *server, const struct gb_handoff *handoff);
/* Takes the header, now or when it comes, then calls `then`. The socket is the callee's; one with another beginning is
 * closed. */
void gb_proxy_begin(struct gb_loop *loop, const struct gb_handoff *handoff, gb_proxied *then);

/* An event, unless it is a listening socket's. False: it is not that of a connection that waits here. */
bool gb_proxy_event(struct gb_loop *loop, void *data, uint32_t events);
/* Ends those whose time has ended. Each sweep. */
void gb_proxies_sweep(struct gb_loop *loop, uint64_t now_ns);
/* Frees those that have ended; no event names them any more. */
void gb_proxies_bury(struct gb_loop *loop);
/* All end. */
void gb_proxies_done(struct gb_loop *loop);

#endif
