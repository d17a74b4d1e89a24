/* Makes libmicrohttpd's responses of ours. On the loop's thread. */
#ifndef GB_HTTP_MHD_REPLY_H
#define GB_HTTP_MHD_REPLY_H

#include "http/exchange/exchange.h"

/* Queues the reply that is in ex. Returns 0, or -1 if memory is exhausted. */
int gb_mhd_reply(struct gb_exchange *ex);

#endif
