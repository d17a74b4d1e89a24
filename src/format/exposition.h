/* Metrics as text that collectors read: Prometheus' format 0.0.4 and OpenMetrics 1.0. */
#ifndef GB_FORMAT_EXPOSITION_H
#define GB_FORMAT_EXPOSITION_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

enum gb_exposition { GB_EXPOSITION_TEXT, GB_EXPOSITION_OPENMETRICS, GB_EXPOSITIONS };
/* The Content-Type. */
const char *gb_exposition_type(enum gb_exposition form);

enum gb_metric_type { GB_METRIC_COUNTER, GB_METRIC_GAUGE, GB_METRIC_HISTOGRAM };

enum gb_metric_unit {
    GB_UNIT_NONE,
    GB_UNIT_BYTES,
    GB_UNIT_SECONDS, /* values are given in nanoseconds */
    /* Values are given in millionths (gb_millionths), and may be less than 0. */
    GB_UNIT_CELSIUS,
    GB_UNIT_WATTS,
    GB_UNIT_HERTZ,
    GB_UNIT_RATIO
};

/* A value that is not known: no sample is written. */
#define GB_METRIC_UNKNOWN (UINT64_MAX - 1)
/* NAN is not known. */
uint64_t gb_millionths(double value);

/* All text is static. */
struct gb_family {
    enum gb_metric_type type;
    const char *prefix; /* "gpubufd_" or "process_" */
    const char *name;   /* ends in its unit; without "_total", which a counter gets where the format wants it */
    enum gb_metric_unit unit;
    const char *help; /* without quotes, backslashes and line feeds */
};

/* Writes the header of a family; all its samples must follow. */
void gb_exposition_family(FILE *out, enum gb_exposition form, const struct gb_family *family);

/* Writes one sample. suffix: "_bucket" and so on of a histogram, else "". labels: the text between the braces; "" for
 * none. unit: of the value; buckets have none. UINT64_MAX is +Inf. */
void gb_exposition_sample(FILE *out, const struct gb_family *family, const char *suffix, const char *labels,
                          enum gb_metric_unit unit, uint64_t value);

/* Ends the text. */
void gb_exposition_end(FILE *out, enum gb_exposition form);

/* Adds a label to those in out[0..size), and escapes its text. Returns false and adds nothing when it does not fit. */
bool gb_exposition_label(char *out, size_t size, const char *name, const char *value);

#endif
