/* Several tensors at once: PUT and GET /v1/sessions/{s}/tensors. */
#ifndef GB_API_TRANSFER_TENSORS_H
#define GB_API_TRANSFER_TENSORS_H

#include "api/context.h"
#include "api/request/tensor_names.h"
#include "format/safetensors.h"

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

/* Which buffers a download takes: names in the order that is wanted, else all whose names begin so and that have the label.
 * *ret is malloc'd; *ret_named: each must be there. Returns 0, or -1 with INVALID_ARGUMENT, INVALID_NAME, SESSION_NOT_FOUND
 * or SATURATED. */
int gb_tensors_select(const struct gb_http_request *request, const struct gb_name *session, struct gb_name **ret,
                      size_t *ret_count, bool *ret_named, struct gb_error *err);

/* The file's header for what the download group holds, and the order of the bytes, malloc'd: larger elements first, so that each
 * tensor is aligned. *ret_bytes: of all tensors. Returns 0, or -1 with NOT_ACCEPTABLE (a type that the format lacks),
 * INVALID_ARGUMENT (two tensors of one name, or too much) or SATURATED. */
int gb_tensors_header(const struct gb_download_group *group, struct gb_json_writer *out, size_t **ret_order,
                      uint64_t *ret_bytes, struct gb_error *err);

#endif
