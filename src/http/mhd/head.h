/* Checks that libmicrohttpd has read the header in its buffer as it was sent. */
#ifndef GB_HTTP_MHD_HEAD_H
#define GB_HTTP_MHD_HEAD_H

#include "http/exchange/exchange.h"

struct gb_head {
    const char *begin;
    const char *at; /* where the next line has to begin; NULL: this libmicrohttpd is strict */
};

/* To be called in this order: the request line, with the strings of the first callback; each field; the end. False: the
 * header is malformed. */
bool gb_head_request_line(struct gb_head *head, const struct gb_exchange *ex, const char *method, const char *url,
                          const char *version);
bool gb_head_line(struct gb_head *head, const char *name, size_t name_len, const char *value, size_t value_len);
bool gb_head_end(const struct gb_head *head, const struct gb_exchange *ex);

/* Keeps the head as it was received in ex->raw, so that a request that begins with the same bytes need not be parsed.
 * Does nothing where that is not known, or memory is exhausted. While libmicrohttpd has the request. */
void gb_head_keep(struct gb_exchange *ex);

#endif
