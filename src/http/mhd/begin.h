/* The first check of a request: everything that the headers decide, before a byte of the body is asked for. */
#ifndef GB_HTTP_MHD_BEGIN_H
#define GB_HTTP_MHD_BEGIN_H

#include "http/mhd/head.h"

/* Afterwards the phase is HEAD, BODY or REPLY. */
void gb_mhd_begin(struct gb_exchange *ex, const char *method, const char *url, const char *version);

/* The parts of gb_mhd_begin that need no request line. head may be NULL: then lines are not checked. Returns 0 or -1
 * with *err. */
void gb_mhd_start(struct gb_exchange *ex);
int gb_mhd_read_headers(struct gb_exchange *ex, struct gb_head *head, struct gb_error *err);

#endif
