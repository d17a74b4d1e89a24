/* Metrics as text: families, samples and histograms in either of two formats. The caller has the numbers and the
 * names. */
#include "format/exposition.h"

#include <inttypes.h>
#include <string.h>

#include "base/clock.h"

const char *gb_exposition_type(enum gb_exposition form) {
    return form == GB_EXPOSITION_OPENMETRICS ? "application/openmetrics-text; version=1.0.0; charset=utf-8"
                                             : "text/plain; version=0.0.4; charset=utf-8";
}

static const char *type_name(enum gb_metric_type type) {
    return type == GB_METRIC_COUNTER ? "counter" : type == GB_METRIC_GAUGE ? "gauge" : "histogram";
}

static const char *const unit_names[] = {
    [GB_UNIT_NONE] = "",       [GB_UNIT_BYTES] = "bytes", [GB_UNIT_SECONDS] = "seconds", [GB_UNIT_CELSIUS] = "celsius",
    [GB_UNIT_WATTS] = "watts", [GB_UNIT_HERTZ] = "hertz", [GB_UNIT_RATIO] = "ratio"};

uint64_t gb_millionths(double value) {
    return value > -1e12 && value < 1e12 ? (uint64_t)(int64_t)(value * 1e6 + (value < 0 ? -0.5 : 0.5))
                                         : GB_METRIC_UNKNOWN;
}

void gb_exposition_family(FILE *out, enum gb_exposition form, const struct gb_family *family) {
    bool open = form == GB_EXPOSITION_OPENMETRICS;
    /* OpenMetrics names a counter's family without the suffix of its samples. */
    const char *total = family->type == GB_METRIC_COUNTER && !open ? "_total" : "";
    const char *prefix = family->prefix;

    fprintf(out, "# HELP %s%s%s %s\n", prefix, family->name, total, family->help);
    fprintf(out, "# TYPE %s%s%s %s\n", prefix, family->name, total, type_name(family->type));
    if (open && family->unit != GB_UNIT_NONE)
        fprintf(out, "# UNIT %s%s %s\n", prefix, family->name, unit_names[family->unit]);
}

static void put_value(FILE *out, enum gb_metric_unit unit, uint64_t value) {
    if (value == UINT64_MAX)
        fputs("+Inf\n", out);
    else if (unit >= GB_UNIT_CELSIUS)
        fprintf(out, "%.15g\n", (double)(int64_t)value / 1e6);
    else if (unit == GB_UNIT_SECONDS)
        fprintf(out, "%" PRIu64 ".%09" PRIu64 "\n", value / (uint64_t)GB_NS_PER_S, value % (uint64_t)GB_NS_PER_S);
    else
        fprintf(out, "%" PRIu64 "\n", value);
}

void gb_exposition_sample(FILE *out, const struct gb_family *family, const char *suffix, const char *labels,
                          enum gb_metric_unit unit, uint64_t value) {
    if (value == GB_METRIC_UNKNOWN)
        return;
    fputs(family->prefix, out);
    fputs(family->name, out);
    fputs(family->type == GB_METRIC_COUNTER ? "_total" : suffix, out);
    if (labels[0] != '\0') {
        fputc('{', out);
        fputs(labels, out);
        fputc('}', out);
    }
    fputc(' ', out);
    put_value(out, unit, value);
}

void gb_exposition_end(FILE *out, enum gb_exposition form) {
    if (form == GB_EXPOSITION_OPENMETRICS)
        fputs("# EOF\n", out);
}

bool gb_exposition_label(char *out, size_t size, const char *name, const char *value) {
    size_t used = strlen(out);
    int n = snprintf(out + used, size - used, "%s%s=\"", used > 0 ? "," : "", name);
    size_t at = used + (size_t)n;

    for (; *value && at + 4 < size; value++) {
        if (*value == '\\' || *value == '"' || *value == '\n')
            out[at++] = '\\';
        out[at++] = *value == '\n' ? 'n' : *value;
    }
    if (*value || at + 2 > size) {
        out[used] = '\0';
        return false;
    }
    out[at++] = '"';
    out[at] = '\0';
    return true;
}
