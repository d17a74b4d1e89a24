/* What a request asks of an upload: by its path, query and headers, and by the first bytes of its body. */
#ifndef GB_API_TRANSFER_UPLOAD_REQUEST_H
#define GB_API_TRANSFER_UPLOAD_REQUEST_H

#include "api/request/media.h"
#include "core/core.h"
#include "http/http.h"

/* What the body is, as far as the headers tell. */
struct gb_upload_request {
    bool never_npy;    /* dtype or shape were given, so a .npy is a mistake */
    enum gb_form said; /* by ?format= or Content-Type; RAW: nothing was */
    bool may_say;      /* its first bytes decide: .npy and safetensors say dtype and shape themselves */
    bool coded;        /* Content-Length is not that of the bytes: see filters.h */
    bool has_shape;
    bool sliced;           /* ?slice= */
    struct gb_shape slice; /* what it makes of the buffer's shape */
    bool adopted;          /* it is over memory of another process, and written in place in any case */
    bool exists;           /* there is a buffer of that name, with so many bytes */
    uint64_t existing_bytes;
    struct gb_upload_params params; /* bytes, dtype and shape complete unless may_say; check.arg owned until begun */
};

/* What path, query and headers say, conditions aside. *plan is zeroed. Returns 0 or -1. */
int gb_upload_request_read(struct gb_http_request *request, struct gb_upload_request *plan, struct gb_error *err);

/* For raw bytes: fills bytes and shape from the length of the body where they do not stand there, else holds the two
 * against each other. Returns 0, or -1 with SHAPE_MISMATCH or LENGTH_REQUIRED. */
int gb_upload_request_raw(struct gb_upload_request *plan, bool has_length, uint64_t length, struct gb_error *err);
/* For a form that says dtype and shape itself, called `what` in errors. length: of the payload. */
int gb_upload_request_described(struct gb_upload_request *plan, const char *what, enum gb_dtype dtype,
                                const struct gb_shape *shape, bool has_length, uint64_t length, struct gb_error *err);
/* For safetensors: header[0..n) is what stands before the data, length and all. *ret_raw: it is not such a file after all,
 * and nobody said it were; then the plan is left alone. */
int gb_upload_request_safetensors(struct gb_upload_request *plan, const char *header, size_t n, bool has_length,
                                  uint64_t length, bool *ret_raw, struct gb_error *err);

#endif
