/* The reply to an upload, in one request or in several. */
#ifndef GB_API_TRANSFER_UPLOAD_REPLY_H
#define GB_API_TRANSFER_UPLOAD_REPLY_H

#include "core/core.h"
#include "http/http.h"

/* Replies to a finished upload. created: the buffer is new. warning: as in struct gb_upload_request. recv_ns: when
 * its last byte came. */
enum gb_step gb_upload_reply(struct gb_http_request *request, const struct gb_buffer_rec *rec, bool created,
                             const char *warning, const struct gb_transfer_times *times, uint64_t recv_ns,
                             struct gb_http_response *response, struct gb_error *err);

#endif
