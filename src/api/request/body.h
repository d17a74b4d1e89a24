/* The JSON body of a request. */
#ifndef GB_API_REQUEST_BODY_H
#define GB_API_REQUEST_BODY_H

#include "api/request/json.h"
#include "http/http.h"

/* Checks Content-Type and Content-Encoding, then reads the body as gb_json_object does. optional: a missing body counts
 * as {}. */
int gb_body_object(const struct gb_http_request *request, const char *fields, bool optional, json_t **ret,
                   struct gb_error *err);

/* Checks that there is a body, and that its headers say JSON; it is not read. Returns 0 or -1. */
int gb_body_json(const struct gb_http_request *request, struct gb_error *err);

/* Checks that the body is missing or {}. Returns 0 or -1. */
int gb_body_no_fields(const struct gb_http_request *request, struct gb_error *err);

/* Reads the body {"stream": name}. *ret is "default" when the field or the whole body is left out. Returns 0 or -1. */
int gb_body_stream(const struct gb_http_request *request, struct gb_name *ret, struct gb_error *err);

/* Reads the body {"name": name}. Returns 0 or -1. */
int gb_body_name(const struct gb_http_request *request, struct gb_name *ret, struct gb_error *err);

#endif
