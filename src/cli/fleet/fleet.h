/* A fleet as the command line sees it: its nodes, and the first record of its directory. */
#ifndef GB_CLI_FLEET_H
#define GB_CLI_FLEET_H

#include "cli/cli.h"

/* The URL of a node as the client would reach it: in the network over which it talks to its own node. "": none. */
const char *gb_cli_fleet_url(json_t *fleet, json_t *node, const char *own);

/* "KEY=VALUE,..." as an object of texts. NULL with cli->error; option: what it stands in. */
json_t *gb_cli_labels(struct gb_cli *cli, const char *option, const char *text);

/* fleet init: makes the record that a fleet begins with, or with --rebuild the one of a directory that lost it. The
 * exit status. */
int gb_cli_fleet_init(struct gb_cli *cli);

#endif
