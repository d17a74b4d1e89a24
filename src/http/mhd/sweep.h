/* Facts about a connection in libmicrohttpd that have no event: silence, slowness, and missed ends. */
#ifndef GB_HTTP_MHD_SWEEP_H
#define GB_HTTP_MHD_SWEEP_H

#include "http/mhd/loop.h"

/* Ends what is under way on the connection if its caller is no longer in force. On the loop's thread. */
void gb_mhd_end_revoked(struct gb_loop *loop, struct gb_conn *c);
/* The check of a connection that is due every second. On the loop's thread. */
void gb_mhd_sweep(struct gb_loop *loop, struct gb_conn *c, uint64_t now_ns);

#endif
