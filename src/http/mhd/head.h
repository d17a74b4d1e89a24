/* Whether the header, in libmicrohttpd's buffer, is what it was taken for. */
#ifndef GB_HTTP_MHD_HEAD_H
#define GB_HTTP_MHD_HEAD_H

#include "http/exchange/exchange.h"

struct gb_head {
    const char *begin;
    const char *at; /* where the next line has to begin; NULL: libmicrohttpd can be trusted */
};

/* In this order: the request line, with the strings of the first callback; each field; the end. False: it is not. */
bool gb_head_request_line(struct gb_head *head, const struct gb_exchange *ex, const char *method, const char *url,
                          const char *version);
bool gb_head_line(struct gb_head *head, const char *name, size_t name_len, const char *value, size_t value_len);
bool gb_head_end(const struct gb_head *head, const struct gb_exchange *ex);

#endif
