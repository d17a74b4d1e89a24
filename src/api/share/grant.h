/* A lease on its way to the client: what map and export share. One that the client does not get, because it has left or its
 * time is over, is ended. */
#ifndef GB_API_SHARE_GRANT_H
#define GB_API_SHARE_GRANT_H

#include <jansson.h>

#include "api/share/share.h"
#include "base/json_writer.h"
#include "http/http.h"

/* Writes the answer of a call that has succeeded, one JSON object. */
typedef void gb_grant_render(struct gb_json_writer *out, const struct gb_http_request *request,
                             const struct gb_lease_call *call);

/* The call for gb_lease_map or gb_lease_export, which must follow, and then gb_grant_resume. share: the connection that the
 * lease belongs to, borrowed; NULL: none. NULL with SATURATED when memory is exhausted. */
struct gb_lease_call *gb_grant_begin(struct gb_http_request *request, struct gb_share *share, gb_grant_render *render,
                                     struct gb_error *err);

/* Replies at once when the call has finished, else waits for it. */
gb_http_handler gb_grant_resume;

/* The field mode, "read" where it is left out. 0, or -1 with WRONG_TYPE or INVALID_ARGUMENT. */
int gb_grant_mode(const json_t *body, bool *ret_write, struct gb_error *err);

/* GB_EXPORT_HANDLE_BYTES in base64; null for NULL. */
void gb_grant_handle(struct gb_json_writer *out, const char *key, const unsigned char *bytes);

#endif
