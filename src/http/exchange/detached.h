/* Requests that continue without a client; handlers begin them with gb_http_detach. All on the loop's thread. */
#ifndef GB_HTTP_EXCHANGE_DETACHED_H
#define GB_HTTP_EXCHANGE_DETACHED_H

#include "http/exchange/exchange_loop.h"

/* One of them was woken. */
void gb_detached_woken(struct gb_exchange_loop *loop, struct gb_exchange *ex);
/* The server stops: each is resumed once more, timed out, and ends. */
void gb_detached_stop(struct gb_exchange_loop *loop);
/* After all threads have ended: ends those that came too late. */
void gb_detached_done(struct gb_exchange_loop *loop);

#endif
