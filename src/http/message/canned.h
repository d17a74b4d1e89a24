/* Prepared answers inside the http layer; for handlers see http.h.
 *
 * libmicrohttpd's form of an answer is kept beside it, so that a reply costs no allocation. Only mhd/canned.c knows
 * that form. */
#ifndef GB_HTTP_MESSAGE_CANNED_H
#define GB_HTTP_MESSAGE_CANNED_H

#include <stdatomic.h>

#include "http/http.h"

struct gb_http_canned {
    atomic_int refs;
    int status;
    char *type;
    char *etag; /* with its quotes; NULL: none */
    char *body; /* owned by `prepared`, once that is set */
    size_t body_len;
    void *prepared; /* or NULL */
    void (*release)(void *prepared);
};

/* Makes an answer that is not prepared yet; copies all arguments. Returns NULL if memory is exhausted. */
struct gb_http_canned *gb_canned_make(int status, const char *content_type, const char *etag, const void *body,
                                      size_t n);

#endif
