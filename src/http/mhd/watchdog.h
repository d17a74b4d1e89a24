/* Notices a loop that turns without progress, and ends the connection that causes it. */
#ifndef GB_HTTP_MHD_WATCHDOG_H
#define GB_HTTP_MHD_WATCHDOG_H

#include "http/mhd/loop.h"

/* Due with each sweep, before idle_turns begins again. On the loop's thread. */
void gb_mhd_watch_turns(struct gb_loop *loop);

#endif
