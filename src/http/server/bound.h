/* A request and the bounds of its client. http.h has what the application calls. */
#ifndef GB_HTTP_SERVER_BOUND_H
#define GB_HTTP_SERVER_BOUND_H

#include <stdint.h>

#include "base/error.h"
#include "http/http.h"

struct gb_client;
struct gb_exchange;

/* Behind a trusted proxy, the request's address becomes the client's; one that came over a UNIX socket is then no local
 * one any more. When from, local and peer are those of the connection, and before the header is checked. */
void gb_bound_resolve(struct gb_exchange *ex);

/* The request was refused with *err before it could be authorized: it counts for its address. *err becomes
 * TOO_MANY_REQUESTS if that has no more. */
void gb_bound_refused(struct gb_exchange *ex, struct gb_error *err);

/* The request may wait for long. Returns 0, or -1 with TOO_MANY_REQUESTS. Once is enough; ends with the request. */
int gb_bound_may_wait(struct gb_exchange *ex, struct gb_error *err);

/* The client's connection becomes a listener. *ret: for gb_bound_listener_ended, NULL if it has no bound. Returns 0, or
 * -1 with TOO_MANY_REQUESTS. */
int gb_bound_listener_opens(struct gb_http_request *request, struct gb_client **ret, struct gb_error *err);
void gb_bound_listener_ended(struct gb_client *client); /* [any thread] NULL is accepted */

/* The response is the problem of ex->err: adds what is known of the bound. */
void gb_bound_explain(struct gb_exchange *ex);
/* The response is a good one: adds what is left, if the client has a bound. */
void gb_bound_advertise(struct gb_exchange *ex);

/* Gives the client back. */
void gb_bound_leave(struct gb_exchange *ex);

/* Whose share of the memory of replies it takes: NULL is a client without one. The reference is the exchange's. */
struct gb_client *gb_bound_payer(struct gb_exchange *ex);
/* The client has as much of that memory as it may. Returns -1 with TOO_MANY_REQUESTS. */
int gb_bound_refuse_reply(struct gb_exchange *ex, uint64_t permitted, struct gb_error *err);

#endif
