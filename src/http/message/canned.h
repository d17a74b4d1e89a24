/* Prepared answers inside the http layer; for handlers see http.h. */
#ifndef GB_HTTP_MESSAGE_CANNED_H
#define GB_HTTP_MESSAGE_CANNED_H

#include <stdatomic.h>

#include "http/http.h"

struct gb_http_canned {
    atomic_int refs;
    int status;
    char *type;
    char *etag; /* with its quotes; NULL: none */
    char *body;
    size_t body_len;
};

#endif
