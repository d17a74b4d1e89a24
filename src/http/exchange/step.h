/* The calls of handlers, sinks and sources, and the phase that follows from their answers; the same on HTTP loops and
 * transfer loops. All on the thread that has the exchange. */
#ifndef GB_HTTP_EXCHANGE_STEP_H
#define GB_HTTP_EXCHANGE_STEP_H

#include "http/exchange/exchange.h"

/* Runs the handler step that is due: the sink's end where a streamed body is whole, else `handler` (the route's handler
 * or resume). Afterwards the phase is WAIT, BODY, GATHER or REPLY. */
void gb_exchange_step(struct gb_exchange *ex, gb_http_handler *handler);

/* The response is complete before a handler was called. The phase is REPLY. */
void gb_exchange_answer(struct gb_exchange *ex);

/* Makes the reply the problem document of *err, in place of any other. The phase is REPLY. */
void gb_exchange_fail(struct gb_exchange *ex, const struct gb_error *err);

/* Feeds n bytes that stand elsewhere to the sink; *ret_taken of them were taken. Returns 0, or -1 if the sink failed;
 * then the phase is REPLY. If fewer than n were taken with 0, a wake follows. */
int gb_exchange_feed(struct gb_exchange *ex, const char *data, size_t n, size_t *ret_taken);

/* Whether all of the body has arrived. */
bool gb_exchange_body_whole(const struct gb_exchange *ex);

/* Collects a small source. True: the response is a plain body, or a problem document. False: a wake follows. */
bool gb_exchange_gather(struct gb_exchange *ex);

/* Records whether the sink has room: time without room does not count against the client. */
void gb_exchange_room(struct gb_exchange *ex, bool has_room);

/* Whether the body is too slow; then *err is REQUEST_TIMEOUT. */
bool gb_exchange_stalled(const struct gb_exchange *ex, uint64_t now_ns, struct gb_error *err);

/* Whether a refusal no longer waits for the rest of its body (GB_PHASE_DISCARD): the client has paused, or is too
 * slow. */
bool gb_exchange_rest_late(const struct gb_exchange *ex, uint64_t now_ns);

#endif
