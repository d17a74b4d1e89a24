/* Uploads that go on after a broken line, as draft-ietf-httpbis-resumable-upload has it (without 104): create, then append.
 * The headers are read in resumable.c, the bytes come in resumable_sink.c. */
#ifndef GB_API_TRANSFER_RESUMABLE_H
#define GB_API_TRANSFER_RESUMABLE_H

#include "base/error.h"
#include "http/http.h"

#define GB_PARTIAL_UPLOAD "application/partial-upload"
#define GB_PROBLEM_OFFSET "https://iana.org/assignments/http-problem-types#mismatching-upload-offset"
#define GB_PROBLEM_COMPLETED "https://iana.org/assignments/http-problem-types#completed-upload"
#define GB_PROBLEM_LENGTH "https://iana.org/assignments/http-problem-types#inconsistent-upload-length"

/* *ret: Upload-Complete: ?0 is there: the body, if any, is not the whole. 0, or -1 for fields that say nothing, or another
 * length than the whole has. */
int gb_resumable_asked(const struct gb_http_request *request, bool *ret, struct gb_error *err);
/* Where a body is always the whole. 0, or -1 when the client says that it is not. */
int gb_resumable_refuse(const struct gb_http_request *request, struct gb_error *err);
/* The handler for that. */
gb_http_handler gb_resumable_begin;

#endif
