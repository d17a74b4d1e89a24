/* The beginning of a request whose head is known. */
#ifndef GB_HTTP_EXCHANGE_OPEN_H
#define GB_HTTP_EXCHANGE_OPEN_H

#include "http/exchange/exchange_loop.h"

/* Gives the request an id and notes when it began and over which connection. peer: a reference is taken; NULL: TCP. */
void gb_exchange_start(struct gb_exchange *ex, struct gb_exchange_loop *loop, struct gb_peer *peer);

/* The head is read and the route found: asks for permission, makes the place for the body, and calls the handler of a
 * streamed one. The phase is HEAD (the handler is due), BODY, WAIT, GATHER or REPLY afterwards. */
void gb_exchange_open(struct gb_exchange *ex);

#endif
