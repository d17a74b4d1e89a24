/* Statistics over time: the options since, until and step of stats. */
#ifndef GB_CLI_HISTORY_H
#define GB_CLI_HISTORY_H

#include "cli/cli.h"

bool gb_cli_history_wanted(const struct gb_cli_options *options);

/* Adds the period to the target of the statistics. -1 with cli->error set when it is too long. */
int gb_cli_history_target(struct gb_cli *cli, char *target);

/* Prints a history: as JSON, or as a table of what it has. Takes it over. */
int gb_cli_history_show(struct gb_cli *cli, json_t *history);

#endif
