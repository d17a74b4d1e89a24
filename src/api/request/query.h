/* What a request says outside its body: query and path parameters, media types, how long it waits, and names of
 * tensors. */
#ifndef GB_API_REQUEST_QUERY_H
#define GB_API_REQUEST_QUERY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "base/text.h"
#include "format/safetensors.h"
#include "format/values.h"
#include "http/http.h"
#include "model/model.h"

struct gb_page;

/* Each sets *ret when the parameter is given. Returns 1 when it is given, 0 when it is not, or -1 with INVALID_ARGUMENT
 * or INVALID_NAME. */
int gb_query_bool(const struct gb_http_request *request, const char *name, bool *ret, struct gb_error *err);
/* The same; the parameter without a value means true. */
int gb_query_flag(const struct gb_http_request *request, const char *name, bool *ret, struct gb_error *err);
int gb_query_u64(const struct gb_http_request *request, const char *name, uint64_t *ret, struct gb_error *err);
int gb_query_name(const struct gb_http_request *request, const char *name, struct gb_name *ret, struct gb_error *err);

/* Reads the n-th capture of the route as a name. what: "session name" and the like, for the error. Returns 0 or -1. */
int gb_param_name(const struct gb_http_request *request, unsigned n, const char *what, struct gb_name *ret,
                  struct gb_error *err);

#define GB_PAGE_LIMIT 100 /* items of a page, unless the client asks for another number */
#define GB_PAGE_LIMIT_MAX 1000

/* Reads ?limit=; without it the limit is GB_PAGE_LIMIT. Returns 0, or -1 with INVALID_ARGUMENT. */
int gb_query_limit(const struct gb_http_request *request, unsigned *ret_limit, struct gb_error *err);

/* Reads ?cursor= and ?limit=. Returns 0, or -1 with INVALID_ARGUMENT. */
int gb_page_read(const struct gb_http_request *request, struct gb_page *ret, struct gb_error *err);

/* A cursor is the id of the last item of a page. Clients treat it as opaque. */
int gb_cursor_parse(const char *text, size_t len, int64_t *ret_id, struct gb_error *err);
#define GB_CURSOR_SIZE 24
char *gb_cursor_text(int64_t id, char *out);
int gb_limit_parse(const char *text, size_t len, unsigned *ret_limit, struct gb_error *err);

/* Times in query parameters. */

/* Reads a time as RFC 3339 ("2026-01-02T03:04:05Z", "...05.678+01:00"), or as seconds before now ("-3600"). A space
 * counts as the "+" that the client did not encode. *ret: microseconds since the epoch. Returns 1 when the parameter is
 * given, 0 when it is not, or -1 with INVALID_ARGUMENT. */
int gb_query_time(const struct gb_http_request *request, const char *name, int64_t now_us, int64_t *ret,
                  struct gb_error *err);

/* ?label=KEY or ?label=KEY=VALUE: which labels a request asks for. */

/* Zero-initialised, all labels fit. */
struct gb_label_query {
    size_t len;
    char text[GB_LABELS_MAX]; /* how the label begins in a text of labels: "key": or "key":"value" */
};

/* Reads ?label=; without it *ret becomes empty. Returns 0, or -1 with INVALID_ARGUMENT. */
int gb_label_query_read(const struct gb_http_request *request, struct gb_label_query *ret, struct gb_error *err);

/* Whether that label is among these, which are text that gb_json_labels wrote. Costs no allocation. [any thread] */
bool gb_label_query_fits(const struct gb_label_query *query, const char *labels);

/* The names in the path of a request. */

/* Reads the session of the path, and checks that it exists. Returns 0, or -1 with INVALID_NAME or SESSION_NOT_FOUND. */
int gb_path_session(const struct gb_http_request *request, struct gb_name *ret, struct gb_error *err);
/* The same, and the second name of the path. what: "pool name" and the like, for the error. */
int gb_path_names(const struct gb_http_request *request, const char *what, struct gb_name *ret_session,
                  struct gb_name *ret, struct gb_error *err);
/* The same, both names in one. */
int gb_path_locator(const struct gb_http_request *request, const char *what, struct gb_locator *ret,
                    struct gb_error *err);

/* How long a request waits, by Prefer: wait=N. */

/* The wait of a sync if the client names no time, and the longest. */
#define GB_SYNC_WAIT_S 30
#define GB_SYNC_WAIT_MAX_S 60
/* The longest wait of an allocation for memory; without Prefer: wait=N it does not wait. */
#define GB_ALLOC_WAIT_MAX_S 60

/* For a request whose body has arrived, while `what` has work left for it. Returns WAIT, or ERROR with TIMED_OUT if the
 * request may wait no longer. */
enum gb_step gb_body_await(const struct gb_http_request *request, const char *what, struct gb_error *err);

/* Returns the deadline of a sync that starts now, for gb_async_end. */
uint64_t gb_sync_deadline_ns(const struct gb_http_request *request);

/* Names of tensors in files, and the names of their buffers. */

/* The label that keeps a tensor's name when a buffer cannot have it. */
#define GB_TENSOR_LABEL "safetensors.name"

/* Makes the name of a tensor's buffer: prefix and the tensor's name, with '_' for each character that a name may not
 * have. If the name would not begin with a letter or digit, an x goes before it. Returns 0, or -1 with INVALID_NAME
 * when it is too long. */
int gb_tensor_buffer(const char *prefix, const char *tensor, struct gb_name *ret, struct gb_error *err);

/* Finds the name of a buffer's tensor: that of the label, else the buffer's own. Returns out, of GB_LABELS_MAX
 * bytes. */
const char *gb_tensor_name(const struct gb_buffer_rec *rec, char *out);

/* Makes the labels of a buffer that is to hold this tensor: those in `old`, and the tensor's name when the buffer
 * has another. Returns 1 with the labels in out, 0 when `old` stays, or -1 with INVALID_ARGUMENT (too long) or
 * SATURATED. */
int gb_tensor_labels(const char *old, const struct gb_name *buffer, const char *tensor, char out[GB_LABELS_MAX],
                     struct gb_error *err);

/* Makes the names of all buffers, one for each tensor of the file. *ret is malloc'd. Returns 0, or -1 with INVALID_NAME
 * (too long, or two tensors would share a buffer) or SATURATED. */
int gb_tensors_names(const struct gb_safetensors *file, const char *prefix, struct gb_name **ret, struct gb_error *err);

/* Media types of bodies, and the representation that a client asks for. Pure. */

#define GB_MEDIA_JSON "application/json"
#define GB_MEDIA_RAW "application/octet-stream"
#define GB_MEDIA_NPY "application/x-npy"
#define GB_MEDIA_SAFETENSORS "application/x-safetensors"
/* What curl -d and -F say, and browsers' forms. */
#define GB_MEDIA_FORM "application/x-www-form-urlencoded"
#define GB_MEDIA_FORM_PARTS "multipart/form-data"
/* Taken as well: no type is registered for safetensors. */
#define GB_MEDIA_SAFETENSORS_VENDOR "application/vnd.safetensors"

/* The forms that a tensor is sent in. */
enum gb_form { GB_FORM_RAW, GB_FORM_NPY, GB_FORM_SAFETENSORS, GB_FORM_COUNT };

/* Checks the Content-Type of a JSON body (NULL: absent): application/json, anything+json, or the type that curl -d
 * sends. Returns 0, or -1 with UNSUPPORTED_MEDIA_TYPE. */
int gb_media_json(const char *content_type, struct gb_error *err);

/* Checks the Content-Type (NULL: absent) of bytes that are stored as they come. Returns 0, or -1 with
 * UNSUPPORTED_MEDIA_TYPE for a form: curl -d takes line ends and NULs out of a file, and -F puts text around it. */
int gb_media_bytes(const char *content_type, struct gb_error *err);

/* Reads the Content-Type of a tensor (NULL: absent). *ret: the form that it names, else RAW. Returns 0, or -1 with
 * UNSUPPORTED_MEDIA_TYPE. */
int gb_media_tensor(const char *content_type, enum gb_form *ret, struct gb_error *err);

/* Reads ?format=: raw, npy or safetensors; with ret_notation (NULL: of an upload), json or text as well, which leave
 * *ret as it is. Returns 0, or -1 with INVALID_ARGUMENT. */
int gb_media_form(const char *format, enum gb_form *ret, enum gb_notation *ret_notation, struct gb_error *err);
const char *gb_media_type(enum gb_form form);
const char *gb_media_notation_type(enum gb_notation notation);

/* Checks a Content-Encoding (NULL: absent) that may only be identity. Returns 0, or -1 with UNSUPPORTED_MEDIA_TYPE. */
int gb_media_encoding(const char *content_encoding, struct gb_error *err);

/* Finds the form that the Accept header (NULL: absent) prefers, the first one offered among equals. offered: bits 1 <<
 * form, at least one. Returns 0, or -1 with NOT_ACCEPTABLE, which names the offered forms. */
int gb_media_accept(const char *accept, unsigned offered, enum gb_form *ret, struct gb_error *err);

/* Whether the Accept header (NULL: absent) names the type and likes it no less than the other one, which is the
 * default. */
bool gb_media_prefers(const char *accept, const char *type, const char *other);

#endif
