/* The head of a reply that goes out without libmicrohttpd. */
#ifndef GB_HTTP_MESSAGE_HEAD_WRITER_H
#define GB_HTTP_MESSAGE_HEAD_WRITER_H

#include "http/http.h"

#define GB_HEAD_OWN_SIZE 2048        /* room for the fields that are not the response's */
#define GB_HEAD_UNTIL_END UINT64_MAX /* body_len: the body ends with the connection */

/* Writes the head of this response to out. close: the connection ends after it. Returns its length, or 0 if it does not
 * fit into size bytes. */
size_t gb_head_write(const struct gb_http_request *request, const struct gb_http_response *response, uint64_t body_len,
                     bool close, char *out, size_t size);

#endif
