/* Certificates and keys of the listeners for TLS: read at start, and again when a file has changed. What cannot be read
 * leaves what is in force. The start, the main loop and "gpubufd check" call this. */
#ifndef GB_DAEMON_CERTIFICATES_H
#define GB_DAEMON_CERTIFICATES_H

#include "daemon/daemon.h"

/* Whether the kernel offers TLS for sockets (its module tls is loaded). root: "" or where /proc is found. */
bool gb_daemon_kernel_tls(const char *root);

/* Reads certificates and keys, if a listener is for TLS; refuses options that do not go together. */
int gb_daemon_open_tls(struct gb_daemon *daemon, struct gb_error *err);
/* Whether the options of TLS go together, and the files can be read and fit together. INVALID_ARGUMENT. */
int gb_daemon_try_tls(const struct gb_options *options, struct gb_error *err);
/* Reads them again if a file has changed, or asked is set. What cannot be read is logged; what is in force stays. */
void gb_daemon_reload_tls(struct gb_daemon *daemon, bool asked);

#endif
