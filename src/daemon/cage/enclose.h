/* The cage as the options have it: what the daemon gives up once it listens. Landlock and the capabilities are of
 * threads, so they go before the first one; the filter of system calls reaches all threads, and goes when all is
 * open and before the first request. The start calls this. */
#ifndef GB_DAEMON_CAGE_ENCLOSE_H
#define GB_DAEMON_CAGE_ENCLOSE_H

#include "daemon/daemon.h"

/* Has the process leave no core dump and take no debugger, unless --core-dumps is given. */
void gb_daemon_hide(const struct gb_daemon *daemon);
/* Gives up capabilities and the files that are not needed any more, as the options say. Before the first thread, after
 * the state directory is found and the sockets are open. */
int gb_daemon_enclose(struct gb_daemon *daemon, struct gb_error *err);
/* Gives up system calls, once the backend is open, and logs what is in force. */
int gb_daemon_filter(struct gb_daemon *daemon, struct gb_error *err);

#endif
