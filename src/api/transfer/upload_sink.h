/* The body of an upload. */
#ifndef GB_API_TRANSFER_UPLOAD_SINK_H
#define GB_API_TRANSFER_UPLOAD_SINK_H

#include "api/transfer/upload_request.h"

/* A sink for the body; takes plan->params.check.arg even on failure. Where the plan is complete the upload begins here, so
 * that what can be refused is refused before the body. NULL with *err. */
struct gb_http_sink *gb_upload_sink_new(struct gb_http_request *request, const struct gb_upload_request *plan,
                                        struct gb_error *err);

#endif
