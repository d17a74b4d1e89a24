/* An upload in one request: what the request asks, in its path, query and headers and in the first bytes of its body;
 * the sink of that body; and the reply, which uploads in several requests have, too. */
#ifndef GB_API_RESOURCES_UPLOAD_H
#define GB_API_RESOURCES_UPLOAD_H

#include "api/request/query.h"
#include "core/core.h"
#include "format/safetensors.h"
#include "http/http.h"

/* Replies to a finished upload. created: the buffer is new. warning: as in struct gb_upload_request. recv_ns: when
 * its last byte came. */
enum gb_step gb_upload_reply(struct gb_http_request *request, const struct gb_buffer_rec *rec, bool created,
                             const char *warning, const struct gb_transfer_times *times, uint64_t recv_ns,
                             struct gb_http_response *response, struct gb_error *err);

/* What a request asks of an upload: in its path, query and headers, and in the first bytes of its body. */

/* The body, as far as the headers describe it. */
struct gb_upload_request {
    bool never_npy;    /* dtype or shape were given, so a .npy is a mistake */
    enum gb_form said; /* by ?format= or Content-Type; RAW when neither names a form */
    bool may_say;      /* its first bytes decide: .npy and safetensors have dtype and shape */
    const char
        *warning; /* static text: what its first bytes look like, though they are stored as bytes; NULL: nothing */
    bool coded;   /* Content-Length is that of the coded bytes: see digest.h */
    bool chunked; /* the body ends where it says so */
    bool pack;    /* ?pack=true: a safetensors file of one tensor becomes a table too */
    struct gb_table
        *table;   /* of a safetensors file, when its header is there: a reference. NULL: the body is one tensor */
    bool has_max; /* ?max_bytes= */
    uint64_t max_bytes;
    bool has_shape;
    bool sliced;                  /* ?slice= */
    struct gb_shape slice;        /* the shape of the slice */
    struct gb_view slice_fortran; /* its bytes in Fortran order */
    uint64_t tensor_at;           /* ?tensor= (params.in_table): its first byte in the buffer */
    uint64_t tensor_bytes;
    bool needs_table; /* gb_upload_request_read has failed: gb_tables_read brings what it lacks */
    bool adopted;     /* its memory is another process's, and written in place in any case */
    bool exists;      /* a buffer of that name exists, and has existing_bytes */
    uint64_t existing_bytes;
    struct gb_upload_params params; /* bytes, dtype and shape complete unless may_say; check.arg owned until begun,
                                     * session a reference from gb_upload_request_read on, also when that fails */
};

/* Reads path, query and headers, without the conditions. *plan is zeroed. Returns 0 or -1. */
int gb_upload_request_read(struct gb_http_request *request, struct gb_upload_request *plan, struct gb_error *err);

/* Completes a request of raw bytes: fills bytes and shape from the length of the body, or checks the given ones against
 * it. Returns 0, or -1 with SHAPE_MISMATCH or LENGTH_REQUIRED. */
int gb_upload_request_raw(struct gb_upload_request *plan, bool has_length, uint64_t length, struct gb_error *err);
/* Completes a request of raw bytes whose length is not announced: the body is coded or chunked, and its end decides.
 * Returns false if another description must decide; the request is unchanged. */
bool gb_upload_request_open(struct gb_upload_request *plan);
/* Checks the length of a complete request against ?max_bytes=. Returns 0, or -1 with BODY_TOO_LARGE. */
int gb_upload_request_permit(const struct gb_upload_request *plan, struct gb_error *err);
/* Finds what a body is by what the client says of it and by its first bytes, GB_NPY_PREFIX of them or the whole body. A
 * file that is damaged behind them is refused, and not stored as bytes. Sets plan->warning. */
enum gb_form gb_upload_request_recognize(struct gb_upload_request *plan, const char *first, size_t n);
/* Finds how long the header is of a body in that form, which is not RAW. Returns 0 or -1. */
int gb_upload_request_header_bytes(const struct gb_upload_request *plan, enum gb_form form, const char *first, size_t n,
                                   size_t *ret, struct gb_error *err);
/* Completes a request by the whole header[0..n) of a body in that form. length: of the whole body. Returns 0 or -1. */
int gb_upload_request_header(struct gb_upload_request *plan, enum gb_form form, const char *header, size_t n,
                             bool has_length, uint64_t length, struct gb_error *err);
/* The same of a safetensors header of n bytes that was parsed already: as gb_heading_result gives it. Takes both. */
int gb_upload_request_parsed(struct gb_upload_request *plan, struct gb_table *table, struct gb_safetensors *file,
                             size_t n, bool has_length, uint64_t length, struct gb_error *err);
/* The least number of tensors of a safetensors file that makes a table. */
size_t gb_upload_request_least(const struct gb_upload_request *plan);
/* The body has ended within its header. Returns -1. */
int gb_upload_request_cut(const struct gb_upload_request *plan, enum gb_form form, uint64_t length,
                          struct gb_error *err);

/* The body of an upload. */

/* Makes a sink for the body. Takes plan->params.check.arg and the session, also on failure. If the request is
 * complete the upload begins here, so that refusals come before the body. Returns NULL with *err. */
struct gb_http_sink *gb_upload_sink_new(struct gb_http_request *request, const struct gb_upload_request *plan,
                                        struct gb_error *err);

/* --- multipart uploads -------------------------------------------------------------------------------------------- */

/* Reads the session of the path and the id behind it. *ret_id is borrowed, and never NULL. Returns 0, or -1; with
 * UPLOAD_NOT_FOUND also if the token does not reach the upload's buffer. */
int gb_path_upload(const struct gb_http_request *request, struct gb_name *ret_session, const char **ret_id,
                   struct gb_error *err);

/* Replies with the resource as JSON; Upload-Offset and its kin are in the header. */
enum gb_step gb_multipart_reply(struct gb_http_request *request, const struct gb_multipart_view *view, int status,
                                struct gb_http_response *response, struct gb_error *err);
/* Adds those headers alone. complete: the value of Upload-Complete. Returns 0 or -1. */
int gb_multipart_headers(const struct gb_multipart_view *view, bool complete, struct gb_http_response *response,
                         struct gb_error *err);

/* Completes the upload. check.arg is taken; expected may be NULL; warning is as in struct gb_upload_request. The reply
 * is that of a PUT. */
enum gb_step gb_multipart_finish(struct gb_http_request *request, const char *id, const struct gb_buffer_check *check,
                                 const struct gb_multipart_expected *expected, const char *warning,
                                 struct gb_http_response *response, struct gb_error *err);

/* Reads Content-Type, Content-Encoding and digests of a body that is not the whole, and refuses what is wrong. Returns
 * 0 or -1. */
struct gb_filters;
int gb_uploads_filters(const struct gb_http_request *request, struct gb_http_response *response, struct gb_filters *ret,
                       struct gb_error *err);

#endif
