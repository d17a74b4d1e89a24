/* The JSON body of a request. */
#ifndef GB_API_REQUEST_BODY_H
#define GB_API_REQUEST_BODY_H

#include "api/request/json.h"
#include "http/http.h"

/* As gb_json_object, after a look at Content-Type and Content-Encoding. optional: no body counts as {}. */
int gb_body_object(const struct gb_http_request *request, const char *fields, bool optional, json_t **ret,
                   struct gb_error *err);

#endif
