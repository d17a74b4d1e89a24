/* /metrics: the text that was written last, for each format. */
#ifndef GB_API_OBSERVE_METRICS_H
#define GB_API_OBSERVE_METRICS_H

#include <stddef.h>
#include <stdint.h>

#include "format/exposition.h"

struct gb_metrics_snapshot;
struct gb_http_server;

struct gb_metrics;

struct gb_metrics *gb_metrics_new(void);          /* NULL: no memory */
void gb_metrics_free(struct gb_metrics *metrics); /* NULL is accepted */

/* Writes the numbers, and those that the server has of its routes. *ret is malloc'd. Returns 0, or -1 when memory is
 * exhausted. */
int gb_metrics_write(enum gb_exposition form, const struct gb_metrics_snapshot *snapshot,
                     const struct gb_http_server *server, char **ret, size_t *ret_n);

#endif
