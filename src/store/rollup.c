#include "store/rollup.h"

#include <math.h>
#include <string.h>

void gb_rollup_begin(struct gb_rollup *r, int64_t at_us) {
    int i;

    memset(r, 0, sizeof(*r));
    r->point.at_us = at_us;
    for (i = 0; i < GB_HISTORY_GAUGES; i++)
        r->point.gauge[i] = (struct gb_history_span){NAN, NAN, NAN, NAN};
    for (i = 0; i < GB_HISTORY_COUNTERS; i++)
        r->point.counter[i] = NAN;
}

static void add_gauge(struct gb_rollup *r, int i, const struct gb_history_span *row, int64_t samples) {
    struct gb_history_span *span = &r->point.gauge[i];

    if (isnan(row->last))
        return;
    /* Comparisons with what is no number are false. */
    if (!(span->min <= row->min))
        span->min = row->min;
    if (!(span->max >= row->max))
        span->max = row->max;
    span->last = row->last;
    r->sum[i] += row->mean * (double)samples;
    r->weight[i] += samples;
}

void gb_rollup_add(struct gb_rollup *r, const struct gb_history_point *row) {
    int i;

    r->point.samples += row->samples;
    r->uncovered |= isnan(row->counter[GB_COUNTER_covered_s]);
    for (i = 0; i < GB_HISTORY_GAUGES; i++)
        add_gauge(r, i, &row->gauge[i], row->samples);
    for (i = 0; i < GB_HISTORY_COUNTERS; i++) {
        double *sum = &r->point.counter[i];

        if (!isnan(row->counter[i]))
            *sum = isnan(*sum) ? row->counter[i] : *sum + row->counter[i];
    }
}

void gb_rollup_end(const struct gb_rollup *r, struct gb_history_point *ret) {
    int i;

    *ret = r->point;
    if (r->uncovered)
        ret->counter[GB_COUNTER_covered_s] = NAN;
    for (i = 0; i < GB_HISTORY_GAUGES; i++) {
        if (r->weight[i] > 0)
            ret->gauge[i].mean = r->sum[i] / (double)r->weight[i];
    }
}
