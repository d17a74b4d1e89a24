/* The tables of stats and top. */
#ifndef GB_CLI_STATS_H
#define GB_CLI_STATS_H

#include <jansson.h>
#include <stdio.h>

/* before: an earlier look, seconds ago, for rates, which are not told of less than 5; NULL without. sessions may be NULL. */
void gb_cli_stats_put(FILE *out, json_t *stats, json_t *before, double seconds, json_t *sessions);

#endif
