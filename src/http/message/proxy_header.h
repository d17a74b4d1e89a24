/* The PROXY protocol's header, versions 1 and 2, as a pure function. */
#ifndef GB_HTTP_MESSAGE_PROXY_HEADER_H
#define GB_HTTP_MESSAGE_PROXY_HEADER_H

#include <stddef.h>

#include "http/http.h"

/* The longest that is taken, with what a proxy may add (TLV). */
#define GB_PROXY_HEADER_MAX 4096

/* Reads the header that the bytes begin with. Returns its length; 0: more bytes are needed; -1: it is malformed. *ret
 * is set if the header names a client; otherwise (LOCAL, UNKNOWN, other families) it stays as it is. */
int gb_proxy_header_read(const void *bytes, size_t n, struct gb_http_address *ret);

#endif
