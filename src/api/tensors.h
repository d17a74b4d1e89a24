/* Several tensors at once: PUT and GET /v1/sessions/{s}/tensors. */
#ifndef GB_API_TENSORS_H
#define GB_API_TENSORS_H

#include "api/context.h"
#include "api/safetensors.h"
#include "api/tensor_names.h"

/* What the request says of all the buffers to come. */
struct gb_tensors_plan {
    struct gb_name session;
    struct gb_name prefix; /* "": none */
    struct gb_upload_params params;
};

/* A sink for the file. NULL with *err. */
struct gb_http_sink *gb_tensors_sink_new(struct gb_http_request *request, const struct gb_tensors_plan *plan,
                                         bool coded, struct gb_error *err);

/* The names of the buffers, one for each tensor of the file: malloc'd, in *ret. Returns 0, or -1 with INVALID_NAME (too long,
 * or two tensors would get the same) or SATURATED. */
int gb_tensors_names(const struct gb_safetensors *file, const char *prefix, struct gb_name **ret, struct gb_error *err);

#endif
