/* Status codes and their reason phrases (RFC 9110, 15). */
#ifndef GB_HTTP_MESSAGE_STATUS_H
#define GB_HTTP_MESSAGE_STATUS_H

/* Returns static text: "Not Found" for 404, "Unknown" for a code that is not registered. */
const char *gb_http_reason(int status);

#endif
