/* The names in the path of a request. */
#ifndef GB_API_REQUEST_PATH_PARAMS_H
#define GB_API_REQUEST_PATH_PARAMS_H

#include "base/error.h"
#include "base/text.h"
#include "http/http.h"

/* Reads the session of the path, and checks that it exists. Returns 0, or -1 with INVALID_NAME or SESSION_NOT_FOUND. */
int gb_path_session(const struct gb_http_request *request, struct gb_name *ret, struct gb_error *err);
/* The same, and the second name of the path. what: "pool name" and the like, for the error. */
int gb_path_names(const struct gb_http_request *request, const char *what, struct gb_name *ret_session,
                  struct gb_name *ret, struct gb_error *err);
/* The same, both names in one. */
int gb_path_locator(const struct gb_http_request *request, const char *what, struct gb_locator *ret,
                    struct gb_error *err);

#endif
