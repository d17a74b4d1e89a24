/* PUT of a session, a pool or a stream: makes it, or confirms that the one that is there is as asked. Properties that
 * the body does not name are not compared. */
#ifndef GB_API_RESOURCES_CONFIRM_H
#define GB_API_RESOURCES_CONFIRM_H

#include <jansson.h>
#include <stdbool.h>

#include "base/error.h"
#include "base/text.h"
#include "http/http.h"

/* Reads If-None-Match, which is * or absent: with it nothing is confirmed. Reads the body, which may be empty, and
 * whose 'name' may repeat that of the path. fields: as of POST. *ret: the caller's. Returns 0, or -1 with
 * INVALID_ARGUMENT, PRECONDITION_FAILED for an If-Match, or an error of the body. */
int gb_put_read(const struct gb_http_request *request, const struct gb_name *name, const char *fields, json_t **ret,
                struct gb_error *err);

/* What is not as asked. */
struct gb_differences {
    char fields[256]; /* "", or "device, max_bytes" */
};
/* Notes a field whose value differs. */
void gb_differ(struct gb_differences *differences, bool differs, const char *field);

/* What a PUT of a thing that is there comes to: 0 if it is confirmed, which resets the session's idle timer; else -1
 * with PRECONDITION_FAILED because of If-None-Match, or with `exists` and the names of what differs. what: "pool". */
int gb_confirm(const struct gb_http_request *request, const char *what, const struct gb_name *name,
               const struct gb_differences *differences, enum gb_code exists, struct gb_error *err);

#endif
