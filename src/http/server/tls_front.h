/* A connection over TLS in front of libmicrohttpd.
 *
 * libmicrohttpd has one end of a pair of sockets; the front decrypts into the other end and encrypts what comes out of
 * it. It does so for heads and small requests. A connection that leaves libmicrohttpd leaves the front as well: the
 * transfer loop, or the feed, then decrypts and encrypts without the pair. All on the loop's thread. */
#ifndef GB_HTTP_SERVER_TLS_FRONT_H
#define GB_HTTP_SERVER_TLS_FRONT_H

#include "http/server/loop.h"

/* The loop, whose load counts it already, takes a connected socket of a TLS listener: begins with the handshake; or
 * with a request, if handoff->tls is there already. */
void gb_front_adopt(struct gb_loop *loop, const struct gb_handoff *handoff);

/* Whether the data of an event is that of a front. */
bool gb_front_is(const void *data);
/* Returns whether libmicrohttpd has something to read now. */
bool gb_front_event(struct gb_loop *loop, void *data, uint32_t events);
/* After libmicrohttpd has run: encrypts the replies of those that it was given something for. */
void gb_fronts_flush(struct gb_loop *loop);
/* Ends those whose time has ended. Each sweep. */
void gb_fronts_sweep(struct gb_loop *loop, uint64_t now_ns);
/* Frees those that have ended; no event names them any more. */
void gb_fronts_free_ended(struct gb_loop *loop);
/* All end. */
void gb_fronts_done(struct gb_loop *loop);

/* One that is in its handshake for the longest time ends, if it has not only just begun. Returns whether. */
bool gb_fronts_give_way(struct gb_loop *loop);

/* libmicrohttpd has taken its end, and c is its connection. */
void gb_front_opened(struct gb_conn *c);
/* libmicrohttpd has closed its end. */
void gb_front_closed(struct gb_conn *c);
/* A reference to what the client has shown; NULL: nothing, or it is no secure connection. */
const struct gb_http_certificate *gb_front_certificate(struct gb_conn *c);
struct gb_tls *gb_front_tls(const struct gb_conn *c); /* NULL: it is no secure connection */
/* What the server's certificates are for; NULL: it is no secure connection. */
const struct gb_http_names *gb_front_names(const struct gb_conn *c);
/* A connection without a request ends, secure or not: libmicrohttpd finds its end. */
void gb_front_cut(struct gb_conn *c);
/* A connection ends, and what its client has not taken is dropped. */
void gb_front_drop(struct gb_conn *c);
/* The socket that the client's bytes go through: that of the front, or the connection's own. */
int gb_front_wire(const struct gb_conn *c);
/* Bytes that libmicrohttpd has read from its end. */
uint64_t gb_front_taken(const struct gb_conn *c);
/* What libmicrohttpd has not read goes back to the connection. The connection is suspended. Returns 0, or -1 if memory
 * is exhausted. */
int gb_front_unread(struct gb_conn *c);
/* The front ends; the connection continues. *ret: its socket and all that goes along. Always after gb_front_unread. */
void gb_front_take(struct gb_conn *c, struct gb_handoff *ret);

#endif
