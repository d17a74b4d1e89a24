/* The body of an upload. */
#ifndef GB_API_TRANSFER_UPLOAD_SINK_H
#define GB_API_TRANSFER_UPLOAD_SINK_H

#include "api/transfer/upload_request.h"

/* Makes a sink for the body. Takes plan->params.check.arg and the session, also on failure. If the request is
 * complete the upload
 * begins here, so that refusals come before the body. Returns NULL with *err. */
struct gb_http_sink *gb_upload_sink_new(struct gb_http_request *request, const struct gb_upload_request *plan,
                                        struct gb_error *err);

#endif
