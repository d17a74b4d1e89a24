/* Long answers that go through libmicrohttpd. On the loop's thread. */
#ifndef GB_HTTP_MHD_STREAM_H
#define GB_HTTP_MHD_STREAM_H

#include "http/exchange/exchange.h"

struct MHD_Response;

#define GB_MHD_STREAM_BYTES (256u << 10) /* that libmicrohttpd allocates for a source */

/* A source's bytes, in phase STREAM; ex outlives the response's use. NULL if memory is exhausted. */
struct MHD_Response *gb_mhd_stream(struct gb_exchange *ex);
/* The same for a long body in memory, in pieces that show how far it has come. */
struct MHD_Response *gb_mhd_pieces(struct gb_exchange *ex, const char *body, size_t n);

#endif
