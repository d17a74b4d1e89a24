/* Helpers of the handlers of multipart uploads. */
#ifndef GB_API_RESOURCES_UPLOADS_H
#define GB_API_RESOURCES_UPLOADS_H

#include "core/core.h"
#include "http/http.h"

/* Reads the session of the path and the id behind it. *ret_id is borrowed, and never NULL. Returns 0, or -1; with
 * UPLOAD_NOT_FOUND also if the token does not reach the upload's buffer. */
int gb_path_upload(const struct gb_http_request *request, struct gb_name *ret_session, const char **ret_id,
                   struct gb_error *err);

/* Replies with the resource as JSON; Upload-Offset and its kin are in the header. */
enum gb_step gb_multipart_reply(struct gb_http_request *request, const struct gb_multipart_view *view, int status,
                                struct gb_http_response *response, struct gb_error *err);
/* Adds those headers alone. complete: the value of Upload-Complete. Returns 0 or -1. */
int gb_multipart_headers(const struct gb_multipart_view *view, bool complete, struct gb_http_response *response,
                         struct gb_error *err);

/* Completes the upload. check.arg is taken; expected may be NULL; warning is as in struct gb_upload_request. The reply
 * is that of a PUT. */
enum gb_step gb_multipart_finish(struct gb_http_request *request, const char *id, const struct gb_buffer_check *check,
                                 const struct gb_multipart_expected *expected, const char *warning,
                                 struct gb_http_response *response, struct gb_error *err);

/* Reads Content-Type, Content-Encoding and digests of a body that is not the whole, and refuses what is wrong. Returns
 * 0 or -1. */
struct gb_filters;
int gb_uploads_filters(const struct gb_http_request *request, struct gb_http_response *response, struct gb_filters *ret,
                       struct gb_error *err);

#endif
