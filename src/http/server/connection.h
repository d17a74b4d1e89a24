/* The connections of an HTTP loop: how they come to it, and how they end. */
#ifndef GB_HTTP_SERVER_CONNECTION_H
#define GB_HTTP_SERVER_CONNECTION_H

#include <microhttpd.h>

#include "http/server/exchange.h"
#include "http/server/loop.h"

/* [the loop's thread, outside libmicrohttpd's callbacks] The loop takes a socket that gb_loop_give has counted in its
 * load already. If it cannot, the socket is closed and its place given back. */
void gb_conn_adopt_given(struct gb_loop *loop, const struct gb_handoff *handoff);

/* A gb_hand_back: gives the connection to the least loaded loop; to own if no loop is less loaded. On the thread of
 * own, or with own NULL on any thread. */
void gb_conn_hand_back(struct gb_http_server *server, struct gb_loop *own, const struct gb_handoff *handoff);

/* libmicrohttpd's callbacks; cls is the loop. */
void gb_conn_on_connection(void *cls, struct MHD_Connection *mhd, void **socket_context,
                           enum MHD_ConnectionNotificationCode code);
void gb_conn_on_completed(void *cls, struct MHD_Connection *mhd, void **con_cls, enum MHD_RequestTerminationCode code);

/* Listening sockets. Each loop accepts: the kernel wakes one of those that sleep. On the loop's thread. */

int gb_listen_start(struct gb_loop *loop, struct gb_error *err);
/* Whether the data of an event is that of a listening socket; if so, accepts the connections that wait there. */
bool gb_listen_event(struct gb_loop *loop, const void *data);
/* Whether another socket waits for the place of a listening one, or has taken it since this loop last checked. */
bool gb_listen_differs(const struct gb_loop *loop);
/* Puts such a socket in its place; listens again after a pause; ends listening when the server drains. */
void gb_listen_tick(struct gb_loop *loop, uint64_t now_ns);

/* Connections that begin with a header of the PROXY protocol. On a loop's thread.
 *
 * The header is taken from the fresh socket before TLS and before libmicrohttpd. Until it is whole, the connection has
 * no place among the others: it waits here, with a deadline. */

struct sockaddr;

/* Continues with a connection whose header has been taken; from->from is the client's address. */
typedef void gb_proxied(struct gb_loop *loop, struct gb_handoff *handoff, const struct sockaddr *from);

/* An event, unless it is a listening socket's. False: it is not that of a connection that waits here. */
bool gb_proxy_event(struct gb_loop *loop, void *data, uint32_t events);
/* Ends those whose time has ended. Each sweep. */
void gb_proxies_sweep(struct gb_loop *loop, uint64_t now_ns);
/* Frees those that have ended; no event names them any more. */
void gb_proxies_free_ended(struct gb_loop *loop);
/* All end. */
void gb_proxies_done(struct gb_loop *loop);

#endif
