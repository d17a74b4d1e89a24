/* Uploads that can be resumed after a broken connection, by draft-ietf-httpbis-resumable-upload (without 104): create,
 * then append. */
#ifndef GB_API_RESOURCES_RESUMABLE_H
#define GB_API_RESOURCES_RESUMABLE_H

#include "base/error.h"
#include "http/http.h"

#define GB_PARTIAL_UPLOAD "application/partial-upload"
#define GB_PROBLEM_OFFSET "https://iana.org/assignments/http-problem-types#mismatching-upload-offset"
#define GB_PROBLEM_COMPLETED "https://iana.org/assignments/http-problem-types#completed-upload"
#define GB_PROBLEM_LENGTH "https://iana.org/assignments/http-problem-types#inconsistent-upload-length"

/* Whether the request begins such an upload: Upload-Complete is ?0. Returns 0 with *ret, or -1 if a header is malformed
 * or contradicts the body's length. */
int gb_resumable_asked(const struct gb_http_request *request, bool *ret, struct gb_error *err);
/* Refuses Upload-Complete: ?0 on a route whose body is always the whole. Returns 0 or -1. */
int gb_resumable_refuse(const struct gb_http_request *request, struct gb_error *err);
/* The handler that creates such an upload. */
gb_http_handler gb_resumable_begin;

#endif
