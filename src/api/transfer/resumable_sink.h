/* The bytes of one append to an upload that can be resumed. */
#ifndef GB_API_TRANSFER_RESUMABLE_SINK_H
#define GB_API_TRANSFER_RESUMABLE_SINK_H

#include "core/core.h"
#include "http/http.h"

/* Makes a sink for the bytes. Takes append, also on failure. creates: the request made the upload. completes:
 * Upload-Complete is ?1. whole: the bytes are to be compared with a digest, and count when that was done or not at all.
 * Returns NULL with *err. */
struct gb_http_sink *gb_resumable_sink_new(struct gb_http_request *request, struct gb_append *append, bool creates,
                                           bool completes, bool whole, struct gb_error *err);

#endif
