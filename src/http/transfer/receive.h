/* A transfer receives a body. All on the loop's thread. */
#ifndef GB_HTTP_TRANSFER_RECEIVE_H
#define GB_HTTP_TRANSFER_RECEIVE_H

#include "http/transfer/members.h"

/* The states CONTINUE and BODY. */
enum gb_transfer_outcome gb_http_transfer_continue(struct gb_transfer_loop *loop, struct gb_http_transfer *t);
enum gb_transfer_outcome gb_http_transfer_receive(struct gb_transfer_loop *loop, struct gb_http_transfer *t);

/* The socket is readable from that many bytes on. */
void gb_http_transfer_mark(struct gb_http_transfer *t, int bytes);

/* Whether there are bytes of its body, while it waits for more. */
bool gb_http_transfer_has_bytes(const struct gb_http_transfer *t);

#endif
