/* RFC 9457 problem documents. */
#ifndef GB_HTTP_MESSAGE_PROBLEM_H
#define GB_HTTP_MESSAGE_PROBLEM_H

#include "base/error.h"
#include "base/json_writer.h"

/* Opens a document and writes the members that all have. type: NULL for the URN of the code. instance: the target of
 * the request. id: the request's. The caller adds members and closes the object. */
void gb_problem_open(struct gb_json_writer *out, const struct gb_error *error, const char *type, const char *instance,
                     const char *id);

#endif
