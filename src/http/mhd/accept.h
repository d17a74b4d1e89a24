/* Listening sockets. Each loop accepts: the kernel wakes one of those that sleep. On the loop's thread. */
#ifndef GB_HTTP_MHD_ACCEPT_H
#define GB_HTTP_MHD_ACCEPT_H

#include "http/mhd/loop.h"

int gb_listen_start(struct gb_loop *loop, struct gb_error *err);
/* Whether the data of an event is that of a listening socket; if so, accepts the connections that wait there. */
bool gb_listen_event(struct gb_loop *loop, const void *data);
/* Whether another socket waits for the place of a listening one, or has taken it since this loop last checked. */
bool gb_listen_differs(const struct gb_loop *loop);
/* Puts such a socket in its place; listens again after a pause; ends listening when the server drains. */
void gb_listen_tick(struct gb_loop *loop, uint64_t now_ns);

#endif
