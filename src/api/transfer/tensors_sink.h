/* The body of PUT /v1/sessions/{session}/tensors. */
#ifndef GB_API_TRANSFER_TENSORS_SINK_H
#define GB_API_TRANSFER_TENSORS_SINK_H

#include "core/core.h"
#include "http/http.h"

/* What the request asks of all buffers to come. */
struct gb_tensors_plan {
    struct gb_name session;
    struct gb_name prefix; /* "": none */
    struct gb_upload_params params;
};

/* Makes a sink for the file. coded: Content-Length is that of the coded bytes. Returns NULL with *err. */
struct gb_http_sink *gb_tensors_sink_new(struct gb_http_request *request, const struct gb_tensors_plan *plan,
                                         bool coded, struct gb_error *err);

#endif
