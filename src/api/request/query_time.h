/* Times in query parameters. */
#ifndef GB_API_REQUEST_QUERY_TIME_H
#define GB_API_REQUEST_QUERY_TIME_H

#include <stdint.h>

#include "base/error.h"
#include "http/http.h"

/* Reads a time as RFC 3339 ("2026-01-02T03:04:05Z", "...05.678+01:00"), or as seconds before now ("-3600"). A space
 * counts as the "+" that the client did not encode. *ret: microseconds since the epoch. Returns 1 when the parameter is
 * given, 0 when it is not, or -1 with INVALID_ARGUMENT. */
int gb_query_time(const struct gb_http_request *request, const char *name, int64_t now_us, int64_t *ret,
                  struct gb_error *err);

#endif
