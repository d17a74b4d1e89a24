/* The tables of stats and top. */
#ifndef GB_CLI_STATS_H
#define GB_CLI_STATS_H

#include <jansson.h>
#include <stdio.h>

/* before: an earlier sample, that many seconds old, for rates; none are printed below 5 s; NULL: no rates. sessions may
 * be NULL. */
void gb_cli_stats_put(FILE *out, json_t *stats, json_t *before, double seconds, json_t *sessions);

#endif
