/* Canned answers as libmicrohttpd's responses. */
#ifndef GB_HTTP_MHD_CANNED_H
#define GB_HTTP_MHD_CANNED_H

#include <stdbool.h>

#include "http/message/canned.h"

struct MHD_Response;

/* Adds the fields that every reply to a request that reads has. False: memory is exhausted. */
bool gb_mhd_add_every(struct MHD_Response *response);

/* libmicrohttpd's form of the answer; it lives as long as the canned one. */
static inline struct MHD_Response *gb_mhd_canned(const struct gb_http_canned *canned) {
    return (struct MHD_Response *)canned->prepared;
}

#endif
