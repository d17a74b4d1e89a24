/* Uploads that go on after a broken line, as draft-ietf-httpbis-resumable-upload has it (without 104): create, then append.
 * The headers are read in resumable.c, the bytes come in resumable_sink.c. */
#ifndef GB_API_RESUMABLE_H
#define GB_API_RESUMABLE_H

#include "api/upload.h"

#define GB_PARTIAL_UPLOAD "application/partial-upload"
#define GB_PROBLEM_OFFSET "https://iana.org/assignments/http-problem-types#mismatching-upload-offset"
#define GB_PROBLEM_COMPLETED "https://iana.org/assignments/http-problem-types#completed-upload"
#define GB_PROBLEM_LENGTH "https://iana.org/assignments/http-problem-types#inconsistent-upload-length"

/* Upload-Complete is there, and is ?0 or ?1. */
bool gb_resumable_said(const struct gb_http_request *request);
/* Upload-Complete: ?0 is there: the body, if any, is not the whole. */
bool gb_resumable_asked(const struct gb_http_request *request);
/* The handler for that. */
gb_http_handler gb_resumable_begin;

/* A sink for the bytes; takes append, also on failure. completes: Upload-Complete: ?1. creates: the request made the upload. */
struct gb_http_sink *gb_resumable_sink_new(struct gb_http_request *request, struct gb_append *append, bool creates,
                                           bool completes, struct gb_error *err);

#endif
