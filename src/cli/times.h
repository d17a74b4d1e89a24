/* How long a transfer waited and copied, on standard error with --verbose. */
#ifndef GB_CLI_TIMES_H
#define GB_CLI_TIMES_H

#include "cli/cli.h"

/* Of the request whose answer the client has. */
void gb_cli_times_put(const struct gb_cli *cli);

/* Of a download of so many bytes, which was the client's last call. The reply's header leaves before a large download
 * has ended, so the daemon is asked for the rest. */
void gb_cli_times_get(struct gb_cli *cli, const struct gb_cli_name *name, uint64_t bytes);

#endif
