/* Takes a connection out of libmicrohttpd. On the loop's thread. */
#ifndef GB_HTTP_MHD_LEAVE_H
#define GB_HTTP_MHD_LEAVE_H

#include "http/mhd/loop.h"

/* Moves the connection to a transfer loop. 0, or -1 and everything stays as it was. */
int gb_mhd_detach(struct gb_loop *loop, struct gb_exchange *ex);
/* The connection goes to the feed, and the request has ended. 0, or -1 and everything stays as it was. */
int gb_mhd_listen(struct gb_loop *loop, struct gb_exchange *ex);

/* The parts of gb_mhd_detach. The facts about the socket, for its way back; fd is -1. */
struct gb_handoff gb_mhd_describe(const struct gb_exchange *ex);
/* A duplicate of the socket, or -1. */
int gb_mhd_duplicate(const struct gb_exchange *ex);
/* Parts the exchange from its connection, which has no request, peer or source any more. */
void gb_mhd_part(struct gb_conn *c, struct gb_exchange *ex);
/* Gives the exchange to a transfer loop, with a socket that libmicrohttpd has no more. */
void gb_mhd_give(struct gb_loop *loop, struct gb_exchange *ex, const struct gb_handoff *socket);

/* Bytes that libmicrohttpd may have read beyond the current request; 0 is a proof that it has read none. */
uint64_t gb_mhd_held(const struct gb_exchange *ex);
/* Bytes received by the kernel less those still unread; 0 if the kernel does not say. */
uint64_t gb_socket_taken(int fd);

#endif
