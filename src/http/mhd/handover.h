/* Takes a connection from libmicrohttpd together with the bytes that it has read behind the header. On the loop's
 * thread. */
#ifndef GB_HTTP_MHD_HANDOVER_H
#define GB_HTTP_MHD_HANDOVER_H

#include "http/mhd/loop.h"

/* Both on a loop without connections. Init returns 0 or -1 with *err. */
int gb_mhd_handover_init(struct gb_loop *loop, struct gb_error *err);
void gb_mhd_handover_done(struct gb_loop *loop);

/* Moves the connection and those bytes to a transfer loop. From a request's first callback; libmicrohttpd has to run
 * once more for it. 0, or -1 and everything stays as it was. */
int gb_mhd_hand_over(struct gb_loop *loop, struct gb_exchange *ex);
/* libmicrohttpd has ended the connection instead: the transfer loop gets it without those bytes, and answers. */
void gb_mhd_not_handed_over(struct gb_loop *loop, struct gb_exchange *ex);

#endif
