/* From our responses to libmicrohttpd's. */
#ifndef GB_HTTP_MHD_REPLY_H
#define GB_HTTP_MHD_REPLY_H

#include "http/exchange/exchange.h"

/* Queues the reply that stands in ex. 0 or -1. */
int gb_mhd_reply(struct gb_exchange *ex);

#endif
