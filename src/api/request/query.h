/* Query parameters, path parameters and pages of lists. */
#ifndef GB_API_REQUEST_QUERY_H
#define GB_API_REQUEST_QUERY_H

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"
#include "base/text.h"
#include "http/http.h"

struct gb_page;

/* Each sets *ret when the parameter is given. Returns 1 when it is given, 0 when it is not, or -1 with INVALID_ARGUMENT
 * or INVALID_NAME. */
int gb_query_bool(const struct gb_http_request *request, const char *name, bool *ret, struct gb_error *err);
/* The same; the parameter without a value means true. */
int gb_query_flag(const struct gb_http_request *request, const char *name, bool *ret, struct gb_error *err);
int gb_query_u64(const struct gb_http_request *request, const char *name, uint64_t *ret, struct gb_error *err);
int gb_query_name(const struct gb_http_request *request, const char *name, struct gb_name *ret, struct gb_error *err);

/* Reads the n-th capture of the route as a name. what: "session name" and the like, for the error. Returns 0 or -1. */
int gb_param_name(const struct gb_http_request *request, unsigned n, const char *what, struct gb_name *ret,
                  struct gb_error *err);

#define GB_PAGE_LIMIT 100 /* items of a page, unless the client asks for another number */
#define GB_PAGE_LIMIT_MAX 1000

/* Reads ?limit=; without it the limit is GB_PAGE_LIMIT. Returns 0, or -1 with INVALID_ARGUMENT. */
int gb_query_limit(const struct gb_http_request *request, unsigned *ret_limit, struct gb_error *err);

/* Reads ?cursor= and ?limit=. Returns 0, or -1 with INVALID_ARGUMENT. */
int gb_page_read(const struct gb_http_request *request, struct gb_page *ret, struct gb_error *err);

/* A cursor is the id of the last item of a page. Clients treat it as opaque. */
int gb_cursor_parse(const char *text, size_t len, int64_t *ret_id, struct gb_error *err);
#define GB_CURSOR_SIZE 24
char *gb_cursor_text(int64_t id, char *out);
int gb_limit_parse(const char *text, size_t len, unsigned *ret_limit, struct gb_error *err);

#endif
