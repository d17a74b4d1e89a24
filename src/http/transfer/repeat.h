/* A connection that asks the same once more: its head is compared, not parsed. */
#ifndef GB_HTTP_TRANSFER_REPEAT_H
#define GB_HTTP_TRANSFER_REPEAT_H

#include "http/transfer/members.h"

/* The connection waits for its next request, whose first bytes are there. If they are the head of the last one, the
 * request begins, and true is returned. Else nothing is taken from the socket. */
bool gb_http_transfer_repeat(struct gb_transfer_loop *loop, struct gb_http_transfer *t);

#endif
