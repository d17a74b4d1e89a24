/* A sink that collects a bounded body in memory. */
#ifndef GB_HTTP_MESSAGE_BODY_BUFFER_H
#define GB_HTTP_MESSAGE_BODY_BUFFER_H

#include "http/http.h"

/* At most max bytes; more are BODY_TOO_LARGE. Returns NULL if memory is exhausted. */
struct gb_http_sink *gb_body_buffer_new(size_t max);

/* The whole body has arrived: sets the request's body, which lives as long as the sink. */
void gb_body_buffer_end(struct gb_http_sink *sink, struct gb_http_request *request);

#endif
