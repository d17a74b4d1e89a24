/* Where a request comes from: the client behind proxies, by Forwarded or X-Forwarded-For, and the header of the PROXY
 * protocol. */
#ifndef GB_HTTP_MESSAGE_NETWORK_H
#define GB_HTTP_MESSAGE_NETWORK_H

#include <stddef.h>

#include "http/http.h"

/* If the connection is one of a trusted proxy, request->from becomes the rightmost address of Forwarded (forwarded), or
 * of X-Forwarded-For, that is not a trusted proxy. The other field is not read: a proxy that writes one of them hands
 * on what its client has written into the other. An element that is no address ends the search, and request->from is
 * then unknown: the client of a proxy is never taken for the proxy. */
void gb_forwarded_resolve(struct gb_http_request *request, bool forwarded, const struct gb_http_network *trusted,
                          size_t count);

/* The PROXY protocol's header, versions 1 and 2, as a pure function. */

/* The longest that is taken, with what a proxy may add (TLV). */
#define GB_PROXY_HEADER_MAX 4096

/* Reads the header that the bytes begin with. Returns its length; 0: more bytes are needed; -1: it is malformed. *ret
 * is set if the header names a client; otherwise (LOCAL, UNKNOWN, other families) it stays as it is. */
int gb_proxy_header_read(const void *bytes, size_t n, struct gb_http_address *ret);

#endif
