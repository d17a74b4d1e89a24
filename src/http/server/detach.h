/* Takes a connection out of libmicrohttpd. On the loop's thread. */
#ifndef GB_HTTP_SERVER_DETACH_H
#define GB_HTTP_SERVER_DETACH_H

#include "http/server/loop.h"

/* Moves the connection to a transfer loop. 0, or -1 and everything stays as it was. */
int gb_detach_to_transfer(struct gb_loop *loop, struct gb_exchange *ex);
/* The connection goes to the feed, and the request has ended. 0, or -1 and everything stays as it was. */
int gb_detach_to_feed(struct gb_loop *loop, struct gb_exchange *ex);

/* Bytes that libmicrohttpd may have read beyond the current request; 0 proves that it has read no such byte. */
uint64_t gb_mhd_held(const struct gb_exchange *ex);
/* Bytes received by the kernel less those still unread; 0 if the kernel does not say. */
uint64_t gb_socket_taken(int fd);

/* Takes a connection from libmicrohttpd together with the bytes that it has read behind the header. On the loop's
 * thread. */

/* Both on a loop without connections. Init returns 0 or -1 with *err. */
int gb_handover_init(struct gb_loop *loop, struct gb_error *err);
void gb_handover_done(struct gb_loop *loop);

/* Moves the connection and those bytes to a transfer loop. From a request's first callback; libmicrohttpd has to run
 * once more for it. 0, or -1 and everything stays as it was. */
int gb_handover_begin(struct gb_loop *loop, struct gb_exchange *ex);
/* libmicrohttpd has ended the connection instead: the transfer loop gets it without those bytes, and answers. */
void gb_handover_failed(struct gb_loop *loop, struct gb_exchange *ex);

#endif
