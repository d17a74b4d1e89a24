/* A request whose head is, byte for byte, that of an earlier one: what was read from that head holds for it too. */
#ifndef GB_HTTP_EXCHANGE_REPEAT_H
#define GB_HTTP_EXCHANGE_REPEAT_H

#include "http/exchange/exchange.h"

/* A new exchange with the head that `like` has, and a reference to it. NULL when memory is exhausted. */
struct gb_exchange *gb_exchange_repeat(struct gb_exchange *like);

#endif
