/* What to do about the error of a command. */
#ifndef GB_CLI_HINT_H
#define GB_CLI_HINT_H

#include "cli/cli.h"

/* The sentence of hints.def for cli->error. NULL when there is none. Static. */
const char *gb_cli_hint(const struct gb_cli *cli);

/* The daemon's own problem document where there was one, with all its members; else one made of cli->error. The
 * caller's. */
json_t *gb_cli_problem(const struct gb_cli *cli);

#endif
