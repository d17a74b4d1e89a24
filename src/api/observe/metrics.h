/* /metrics: the text that was written last, for each format. */
#ifndef GB_API_OBSERVE_METRICS_H
#define GB_API_OBSERVE_METRICS_H

#include <pthread.h>
#include <stddef.h>
#include <stdint.h>

#include "format/exposition.h"

struct gb_metrics_snapshot;
struct gb_http_server;

struct gb_metrics_text {
    char *s; /* NULL: none yet */
    size_t n;
    uint64_t built_ns;
};

struct gb_metrics {
    pthread_mutex_t lock; /* held for a look and a copy, never while a text is written */
    struct gb_metrics_text text[GB_EXPOSITIONS];
};

void gb_metrics_init(struct gb_metrics *metrics);
void gb_metrics_done(struct gb_metrics *metrics);

/* Writes the numbers, and those that the server has of its routes. *ret is malloc'd. -1 when memory is exhausted. */
int gb_metrics_write(enum gb_exposition form, const struct gb_metrics_snapshot *snapshot,
                     const struct gb_http_server *server, char **ret, size_t *ret_n);

#endif
