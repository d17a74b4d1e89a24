/* The client of a request that came through proxies. */
#ifndef GB_HTTP_MESSAGE_NETWORK_H
#define GB_HTTP_MESSAGE_NETWORK_H

#include "http/http.h"

/* If the connection is one of a trusted proxy, request->from becomes the rightmost address of Forwarded, or of
 * X-Forwarded-For, that is not a trusted proxy. An element that is no address ends the search: the client is then the
 * proxy that wrote it. */
void gb_forwarded_resolve(struct gb_http_request *request, const struct gb_http_network *trusted, size_t count);

#endif
