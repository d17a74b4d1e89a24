/* The buffers that GET /v1/sessions/{session}/tensors sends, and the header of the file. */
#ifndef GB_API_TRANSFER_TENSORS_SELECT_H
#define GB_API_TRANSFER_TENSORS_SELECT_H

#include "base/json_writer.h"
#include "core/core.h"
#include "http/http.h"

/* Picks the buffers of a download: those of ?names= in that order, else all that have the prefix and the label. *ret is
 * malloc'd. *ret_named: the client named each, so each must exist. Returns 0, or -1 with INVALID_ARGUMENT,
 * INVALID_NAME, SESSION_NOT_FOUND or SATURATED. */
int gb_tensors_select(const struct gb_http_request *request, const struct gb_name *session, struct gb_name **ret,
                      size_t *ret_count, bool *ret_named, struct gb_error *err);

/* Makes the header of the file for the buffers of the group. *ret_order, malloc'd: the order of the bytes, larger
 * elements first, so that each tensor is aligned. *ret_bytes: of all tensors. Returns 0, or -1 with NOT_ACCEPTABLE (a
 * type that the format lacks), INVALID_ARGUMENT (two tensors of one name, or too many bytes) or SATURATED. */
int gb_tensors_header(const struct gb_download_group *group, struct gb_json_writer *out, size_t **ret_order,
                      uint64_t *ret_bytes, struct gb_error *err);

#endif
