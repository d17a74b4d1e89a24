/* Entity tags of our records and the preconditions on them.
 *
 *     data      "<id>.<generation>"        the raw bytes
 *               "<id>.<generation>-npy<version>"   the same as .npy
 *               "<id>.<generation>-st<version>"    the same as safetensors
 *               "<id>.<generation>-slice<version>"   what a slice picks of the raw bytes; another shape picks others
 *     buffer    "b<id>.<version>"          its metadata
 *     session   "s<id>.<version>-<used>-<buffers>"   its record and what it holds; a change depends on the record
 *               alone, the part before the first '-'
 *     event     "e<id>.<time>.<records>-<done>"
 */
#ifndef GB_API_PIPELINE_CONDITIONAL_H
#define GB_API_PIPELINE_CONDITIONAL_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "api/request/query.h"
#include "base/error.h"
#include "core/core.h"
#include "http/http.h"

#define GB_ETAG_SIZE 96

/* Returns false when a process may be writing the bytes: then neither a tag nor a digest of them holds. */
bool gb_etag_holds(const struct gb_buffer_rec *rec);

/* Each writes the tag without quotes and returns out. */
char *gb_etag_data(const struct gb_buffer_rec *rec, enum gb_form form, char *out);
/* notation: json or text. */
char *gb_etag_values(const struct gb_buffer_rec *rec, enum gb_notation notation, char *out);
char *gb_etag_slice(const struct gb_buffer_rec *rec,
                    char *out); /* raw bytes; slices in the other forms have the tags of the whole */
char *gb_etag_buffer(const struct gb_buffer_rec *rec, char *out);
char *gb_etag_session(const struct gb_session_view *view, char *out);
char *gb_etag_event(const struct gb_event_view *view, char *out);

/* What a change depends on: If-Match, If-None-Match, and the record that it was worked out from. */
struct gb_conditions {
    char *if_match; /* NULL: absent */
    char *if_none_match;
    char *labels;       /* merged labels build on this text; NULL: any */
    int64_t generation; /* dtype or shape alone build on this content; 0: any */
};

/* Reads and checks the headers. Several lines of one header count as one list. Returns 0, or -1 with MALFORMED_REQUEST
 * or SATURATED. */
int gb_conditions_read(const struct gb_http_request *request, struct gb_conditions **ret, struct gb_error *err);
void gb_conditions_free(void *conditions);
/* Makes the change depend on these labels. Returns 0, or -1 with SATURATED. */
int gb_conditions_labels(struct gb_conditions *conditions, const char *labels, struct gb_error *err);

/* The checks for gb_buffer_check and gb_session_check. A buffer matches the tags of its data, in any form, and of its
 * metadata. Each returns 0, or -1 with PRECONDITION_FAILED. */
int gb_conditions_buffer(void *conditions, const struct gb_buffer_rec *rec, struct gb_error *err);
int gb_conditions_session(void *conditions, const struct gb_session_rec *rec, struct gb_error *err);
struct gb_buffer_check gb_conditions_buffer_check(struct gb_conditions *conditions);
/* The field from_if_match of a copy: the condition on its source, as from_check and from_tag. Returns 0 or -1. */
int gb_conditions_source(const json_t *body, struct gb_device_write_params *ret, struct gb_error *err);
struct gb_session_check gb_conditions_session_check(struct gb_conditions *conditions);

/* Adds the ETag header to the reply to a GET of the representation with this tag. Returns 1 to send it, 0 when the
 * response is the 304, or -1 with PRECONDITION_FAILED. */
int gb_conditions_get(const struct gb_http_request *request, const char *tag, struct gb_http_response *response,
                      struct gb_error *err);

/* Long polls: a GET with "Prefer: wait=N" whose reply would be a 304 waits for a change.
 *
 * One thread compares entity tags, some five times a second and only after a change was acknowledged, and wakes the
 * requests whose tag has changed. Waiting requests have left libmicrohttpd (request->park), so that thousands cost
 * no loop anything. */

struct gb_core;

/* Over UNIX sockets, waiting requests stay with libmicrohttpd, which walks all of them whenever one ends. One more than
 * this gets its 304 at once. */
#define GB_POLLS_LOCAL_MAX 64

struct gb_polls;

/* core is borrowed. Returns NULL when memory or threads are exhausted. */
struct gb_polls *gb_polls_new(struct gb_core *core);
void gb_polls_free(struct gb_polls *polls); /* NULL is accepted */
/* Replies 304 to all waiting requests, and to later ones at once. [any thread, never blocks] */
void gb_polls_end(struct gb_polls *polls);
/* Checks the tokens of all waiting requests again. [any thread, never blocks] */
void gb_polls_recheck(struct gb_polls *polls);

/* Whether the resource still has that tag. [now] */
typedef bool gb_poll_same(struct gb_core *core, const struct gb_http_request *request, const char *tag);

/* Waits for a change, when the response is a complete 304. handler: runs again from its start. same: NULL when every
 * change counts. sequence: of the core, read before the record was. Returns REPLY if the client did not ask to wait or
 * the time has passed, else WAIT. */
enum gb_step gb_poll_unchanged(struct gb_polls *polls, struct gb_http_request *request,
                               struct gb_http_response *response, gb_http_handler *handler, gb_poll_same *same,
                               const char *tag, uint64_t sequence);

#endif
