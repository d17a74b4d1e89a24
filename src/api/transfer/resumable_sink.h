/* The bytes of one append to an upload that can be resumed. */
#ifndef GB_API_TRANSFER_RESUMABLE_SINK_H
#define GB_API_TRANSFER_RESUMABLE_SINK_H

#include "core/core.h"
#include "http/http.h"

/* A sink for the bytes; takes append, also on failure. completes: Upload-Complete: ?1. creates: the request made the upload. */
struct gb_http_sink *gb_resumable_sink_new(struct gb_http_request *request, struct gb_append *append, bool creates,
                                           bool completes, struct gb_error *err);

#endif
