/* /metrics: the text that was written last, for each format. */
#ifndef GB_API_RESOURCES_METRICS_H
#define GB_API_RESOURCES_METRICS_H

#include <stddef.h>
#include <stdint.h>

#include "format/exposition.h"

struct gb_metrics_snapshot;
struct gb_http_server;

struct gb_metrics;

struct gb_metrics *gb_metrics_new(void);          /* NULL: no memory */
void gb_metrics_free(struct gb_metrics *metrics); /* NULL is accepted */

#endif
