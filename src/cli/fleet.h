/* A fleet as the command line sees it: the node that a command asks, the nodes as hosts, the first record in etcd. */
#ifndef GB_CLI_FLEET_H
#define GB_CLI_FLEET_H

#include "cli/cli.h"
#include "cli/hosts.h"

/* Of GPUBUF_FLEET, "URL,URL,...": sets cli->node to the owner of the command's session if that takes the token, else
 * to the first node that answers, else to the first; leaves it if there is no GPUBUF_FLEET, or if the command names a
 * daemon. 0, or -1 with cli->error: an address is none. */
int gb_cli_fleet_choose(struct gb_cli *cli);

/* The nodes that have all these labels, "KEY=VALUE,..." or "" for all, as hosts. 0, or -1 with cli->error. */
int gb_cli_fleet_hosts(struct gb_cli *cli, const char *labels, struct gb_cli_hosts *ret);

/* The URL of a node as the client would reach it: in the network over which it talks to its own node. "": none. */
const char *gb_cli_fleet_url(json_t *fleet, json_t *node, const char *own);

/* "KEY=VALUE,..." as an object of texts. NULL with cli->error; option: what it stands in. */
json_t *gb_cli_labels(struct gb_cli *cli, const char *option, const char *text);

/* Opens a client that gives one node no more than a few seconds. 0, or -1 with cli->error. */
int gb_cli_fleet_open(struct gb_cli *cli, const char *url, gpubuf_client **ret);

/* fleet init: makes the record that a fleet begins with, or with --rebuild the one of a directory that lost it. The
 * exit status. */
int gb_cli_fleet_init(struct gb_cli *cli);

#define GB_CLI_UUID_SIZE 37 /* 8-4-4-4-12 hexadecimal digits, and a NUL */

/* Makes the record by which nodes know their fleet, in etcd. known: its uuid; NULL: a new one. ret_made: false if a
 * record was there, perhaps with another uuid. The record; NULL with cli->error. */
json_t *gb_cli_etcd_init(struct gb_cli *cli, const char *endpoints, const char *fleet, const char *known,
                         bool *ret_made);

#endif
