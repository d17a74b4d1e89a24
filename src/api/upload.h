/* An upload between the headers and the reply. */
#ifndef GB_API_UPLOAD_H
#define GB_API_UPLOAD_H

#include "api/conditional.h"
#include "api/context.h"
#include "api/npy.h"

/* What the body is, as far as the headers tell. */
struct gb_upload_plan {
    bool never_npy; /* dtype or shape were given, so a .npy is a mistake */
    bool said_npy;  /* ?format=npy or Content-Type: application/x-npy */
    bool may_npy;   /* its first bytes decide */
    bool coded;     /* Content-Length is not that of the bytes: see filters.h */
    bool has_shape;
    bool exists; /* there is a buffer of that name, with so many bytes */
    uint64_t existing_bytes;
    struct gb_upload_params params; /* bytes, dtype and shape complete unless may_npy; check.arg owned until begun */
};

/* A sink for the body; takes plan->params.check.arg even on failure. Where the plan is complete the upload begins here, so
 * that what can be refused is refused before the body. NULL with *err. */
struct gb_http_sink *gb_upload_sink_new(struct gb_http_request *request, const struct gb_upload_plan *plan,
                                        struct gb_error *err);

/* For raw bytes: fills bytes and shape from the length of the body where they do not stand there, else holds the two
 * against each other. Returns 0, or -1 with SHAPE_MISMATCH or LENGTH_REQUIRED. */
int gb_upload_plan_raw(struct gb_upload_plan *plan, bool has_length, uint64_t length, struct gb_error *err);
/* For .npy: dtype and shape from its header. length: of the payload. */
int gb_upload_plan_npy(struct gb_upload_plan *plan, const struct gb_npy *npy, bool has_length, uint64_t length,
                       struct gb_error *err);

/* The reply to a finished upload. */
enum gb_step gb_upload_reply(struct gb_http_request *request, const struct gb_buffer_rec *rec, bool created,
                             const struct gb_transfer_times *times, uint64_t recv_ns, struct gb_http_response *response,
                             struct gb_error *err);

#endif
