/* Times in query parameters. */
#ifndef GB_API_REQUEST_QUERY_TIME_H
#define GB_API_REQUEST_QUERY_TIME_H

#include <stdint.h>

#include "base/error.h"
#include "http/http.h"

/* RFC 3339 ("2026-01-02T03:04:05Z", "...05.678+01:00"), or seconds before now as "-3600". A "+" that a client forgot to encode comes as a
 * space and is taken for it. Sets *ret (microseconds since the epoch) when the parameter is given. 1: given; 0: not; -1 with
 * INVALID_ARGUMENT. */
int gb_query_time(const struct gb_http_request *request, const char *name, int64_t now_us, int64_t *ret,
                  struct gb_error *err);

#endif
