/* The client of a request that came through proxies. */
#ifndef GB_HTTP_MESSAGE_NETWORK_H
#define GB_HTTP_MESSAGE_NETWORK_H

#include "http/http.h"

/* If the connection is one of a trusted proxy, request->from becomes the rightmost address of Forwarded (forwarded), or
 * of X-Forwarded-For, that is not a trusted proxy. The other field is not read: a proxy that writes one of them hands
 * on what its client has written into the other. An element that is no address ends the search, and request->from is
 * then unknown: the client of a proxy is never taken for the proxy. */
void gb_forwarded_resolve(struct gb_http_request *request, bool forwarded, const struct gb_http_network *trusted,
                          size_t count);

#endif
