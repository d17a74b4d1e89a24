#include "model/health.h"

#include <stdio.h>

const char *gb_health_source_name(enum gb_health_source source) {
    static const char *const names[GB_HEALTH_SOURCES] = {"none", "nvml", "system"};

    return (unsigned)source < GB_HEALTH_SOURCES ? names[source] : "unknown";
}

const char *gb_clock_reason_name(enum gb_clock_reason reason) {
    static const char *const names[GB_CLOCK_REASONS] = {
#define GB_CLOCK_REASON(bit, name) [bit] = #name,
#include "model/clock_reasons.def"
#undef GB_CLOCK_REASON
    };

    return (unsigned)reason < GB_CLOCK_REASONS ? names[reason] : "unknown";
}

void gb_health_clear(struct gb_health *ret, const char *reason) {
    *ret = (struct gb_health){
        .gpu_utilization = NAN, .memory_utilization = NAN, .temperature_c = NAN, .power_w = NAN, .power_limit_w = NAN};
    snprintf(ret->reason, sizeof(ret->reason), "%s", reason ? reason : "");
}
