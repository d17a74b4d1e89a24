/* Arithmetic of the history: rows of a finer level, in the order of time, come to one point. Internal to the store. */
#ifndef GB_STORE_ROLLUP_H
#define GB_STORE_ROLLUP_H

#include "model/history.h"

struct gb_rollup {
    struct gb_history_point point;
    double sum[GB_HISTORY_GAUGES]; /* of means, each by its weight */
    int64_t weight[GB_HISTORY_GAUGES];
    bool uncovered; /* of a row it is not known which time it covers, so that of the point neither */
};

/* Empty, of the span that begins at at_us. */
void gb_rollup_begin(struct gb_rollup *rollup, int64_t at_us);
/* A row: a sample (samples 1, min, mean, max and last alike) or a point. What is not known in it changes nothing. */
void gb_rollup_add(struct gb_rollup *rollup, const struct gb_history_point *row);
/* The point so far. */
void gb_rollup_end(const struct gb_rollup *rollup, struct gb_history_point *ret);

#endif
