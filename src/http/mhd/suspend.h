/* Requests that wait, and their connections, which libmicrohttpd leaves alone meanwhile. On the loop's thread. */
#ifndef GB_HTTP_MHD_SUSPEND_H
#define GB_HTTP_MHD_SUSPEND_H

#include "http/mhd/loop.h"

/* Suspends the connection and lists the request. */
void gb_mhd_suspend(struct gb_loop *loop, struct gb_exchange *ex);
void gb_mhd_resume(struct gb_loop *loop, struct gb_exchange *ex);
/* It leaves, or ends, while it waits. */
void gb_mhd_unlist(struct gb_loop *loop, struct gb_exchange *ex);

#endif
