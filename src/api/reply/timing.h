/* Server-Timing of transfers. */
#ifndef GB_API_REPLY_TIMING_H
#define GB_API_REPLY_TIMING_H

#include "core/core.h"
#include "http/http.h"

/* Adds the header for a copy that the device made. Returns 0 or -1. */
int gb_add_timing(const struct gb_http_request *request, const struct gb_transfer_times *times,
                  struct gb_http_response *response, struct gb_error *err);

/* Adds the header for an upload whose last byte came at recv_ns. Returns 0 or -1. */
int gb_add_upload_timing(const struct gb_http_request *request, const struct gb_transfer_times *times, uint64_t recv_ns,
                         struct gb_http_response *response, struct gb_error *err);

#endif
