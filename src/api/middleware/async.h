/* Waiting for a call of the core: one way for all handlers.
 *
 *     struct gb_session_call *call = gb_async_begin(request, sizeof(*call), err);
 *
 *     if (!call)
 *         return GB_STEP_ERROR;
 *     gb_session_create(core, &params, call);
 *     return gb_async_end(request, response, reply_session, 0, err);
 */
#ifndef GB_API_MIDDLEWARE_ASYNC_H
#define GB_API_MIDDLEWARE_ASYNC_H

#include "core/core.h"
#include "http/http.h"

/* Turns a successful call into the reply; result is what gb_async_begin returned. Runs on a thread of the server. */
typedef enum gb_step gb_async_reply(struct gb_http_request *request, const void *result,
                                    struct gb_http_response *response, struct gb_error *err);

/* A call (struct gb_call, or a type that begins with it) of `size` bytes whose end wakes the request. The request keeps it
 * in request->state. A function of the core that takes the call must follow, and then gb_async_end. NULL with SATURATED
 * when memory is exhausted. */
void *gb_async_begin(struct gb_http_request *request, size_t size, struct gb_error *err);

/* Replies at once when the call has finished, else waits for it; deadline_ns as gb_http_request's, after which the reply
 * is TIMED_OUT. Failures of the call become the error. */
enum gb_step gb_async_end(struct gb_http_request *request, struct gb_http_response *response, gb_async_reply *reply,
                          uint64_t deadline_ns, struct gb_error *err);

/* Between begin and end: the call builds on a record that was read before. When it fails because that has changed since, and
 * the client set no condition itself, `handler` runs again from its start, a few times at most. */
void gb_async_retry(struct gb_http_request *request, gb_http_handler *handler);

#endif
