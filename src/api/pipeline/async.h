/* Waiting for a call of the core: one way for all handlers.
 *
 *     struct gb_session_call *call = gb_async_begin(request, sizeof(*call), err);
 *
 *     if (!call)
 *         return GB_STEP_ERROR;
 *     gb_session_create(core, &params, call);
 *     return gb_async_end(request, response, reply_session, 0, err);
 */
#ifndef GB_API_PIPELINE_ASYNC_H
#define GB_API_PIPELINE_ASYNC_H

#include "core/core.h"
#include "http/http.h"

/* Turns a successful call into the reply; result is what gb_async_begin returned. Runs on a thread of the server. */
typedef enum gb_step gb_async_reply(struct gb_http_request *request, const void *result,
                                    struct gb_http_response *response, struct gb_error *err);

/* A call (struct gb_call, or a type that begins with it) of `size` bytes whose end wakes the request. The request keeps
 * it in request->state. A function of the core that takes the call must follow, and then gb_async_end. NULL with
 * SATURATED when memory is exhausted. */
void *gb_async_begin(struct gb_http_request *request, size_t size, struct gb_error *err);

/* Replies at once when the call has finished, else waits for it. deadline_ns: as gb_http_request.deadline_ns; the reply
 * after it is TIMED_OUT. An error of the call becomes *err. */
enum gb_step gb_async_end(struct gb_http_request *request, struct gb_http_response *response, gb_async_reply *reply,
                          uint64_t deadline_ns, struct gb_error *err);

/* The call of a request, from gb_async_begin on. */
const void *gb_async_call(const struct gb_http_request *request);

/* Marks a call that builds on a record read before, between begin and end. If the call fails because the record has
 * changed and the client set no condition of its own, `handler` runs again from its start, a few times at most. */
void gb_async_retry(struct gb_http_request *request, gb_http_handler *handler);

/* Marks a call that makes what was not there a moment before, between begin and end. If it fails with `exists`, because
 * another request makes the same, `handler` runs again from its start when that has ended, a few times at most. */
void gb_async_again(struct gb_http_request *request, gb_http_handler *handler, enum gb_code exists);

/* The same without a call of the core that fails: `handler` runs again when the changes that are under way have ended.
 * tries: how often it ran before, by gb_async_tries, which is asked before request->state is set to another thing.
 * Returns false if it ran too often; else *ret is what the caller returns. */
bool gb_async_rerun(struct gb_http_request *request, gb_http_handler *handler, unsigned tries,
                    struct gb_http_response *response, enum gb_step *ret, struct gb_error *err);
unsigned gb_async_tries(const struct gb_http_request *request);

/* A function of the core that acts on a named thing of a session, and has no result. */
typedef void gb_named_fn(struct gb_core *core, const struct gb_locator *at, struct gb_call *call);

/* The whole handler of a call on what the path names, answered with 204. what: as in gb_path_locator. */
enum gb_step gb_path_call(struct gb_http_request *request, struct gb_http_response *response, const char *what,
                          gb_named_fn *fn, struct gb_error *err);

/* A function of the core that acts on a buffer, under conditions. */
typedef void gb_buffer_fn(struct gb_core *core, const struct gb_locator *at, const struct gb_buffer_check *check,
                          struct gb_buffer_call *call);

/* The call of a handler on a buffer, under the conditions of the request, which go to *ret_check. NULL: err
 * says why not. */
struct gb_buffer_call *gb_buffer_call_begin(struct gb_http_request *request, struct gb_buffer_check *ret_check,
                                            struct gb_error *err);

/* The whole handler of a call on the buffer that the path names, under the conditions of the request, without a field
 * in the body. */
enum gb_step gb_path_buffer_call(struct gb_http_request *request, struct gb_http_response *response, gb_buffer_fn *fn,
                                 gb_async_reply *reply, struct gb_error *err);

/* Replies 204. */
gb_async_reply gb_reply_nothing;
/* Replies with the call's buffer, 201 when it was created. */
gb_async_reply gb_reply_buffer;

/* Replies to a write that the device made: 201 or 200 with the buffer's members, and with those that `more` (may be
 * NULL) adds, which gets call. */
enum gb_step gb_written_reply(struct gb_http_request *request, const struct gb_buffer_call *call,
                              void (*more)(struct gb_json_writer *out, const void *call),
                              struct gb_http_response *response, struct gb_error *err);

#endif
