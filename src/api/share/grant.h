/* A lease on its way to the client, shared by map and export. If the client does not get it, because it has left or its
 * time is over, the lease ends. */
#ifndef GB_API_SHARE_GRANT_H
#define GB_API_SHARE_GRANT_H

#include <jansson.h>

#include "api/share/share.h"
#include "base/json_writer.h"
#include "http/http.h"

/* Writes the reply to a call that has succeeded, one JSON object. */
typedef void gb_grant_render(struct gb_json_writer *out, const struct gb_http_request *request,
                             const struct gb_lease_call *call);

/* Makes the call for gb_lease_map or gb_lease_export, which must follow, and then gb_grant_resume. share: the
 * connection that the lease belongs to, borrowed; NULL when there is none. Returns NULL with SATURATED when memory is
 * exhausted. */
struct gb_lease_call *gb_grant_begin(struct gb_http_request *request, struct gb_share *share, gb_grant_render *render,
                                     struct gb_error *err);

/* Replies at once when the call has finished, else waits for it. */
gb_http_handler gb_grant_resume;

/* Reads the field mode, "read" when it is left out. Returns 0, or -1 with WRONG_TYPE or INVALID_ARGUMENT. */
int gb_grant_mode(const json_t *body, bool *ret_write, struct gb_error *err);

/* Writes GB_EXPORT_HANDLE_BYTES bytes in base64; null for NULL. */
void gb_grant_handle(struct gb_json_writer *out, const char *key, const unsigned char *bytes);

#endif
