#include "api/reply/render_health.h"

#include <stdio.h>

static void known(struct gb_json_writer *out, const char *key, double value) {
    char text[40];

    if (!isfinite(value)) {
        gb_json_put_null(out, key);
        return;
    }
    snprintf(text, sizeof(text), "%.9g", value);
    gb_json_put_raw(out, key, text);
}

static void render_ecc(struct gb_json_writer *out, const struct gb_health *h) {
    if (!h->has_ecc) {
        gb_json_put_null(out, "ecc");
        return;
    }
    gb_json_open(out, "ecc", '{');
    gb_json_put_u64(out, "corrected", h->ecc_corrected);
    gb_json_put_u64(out, "uncorrected", h->ecc_uncorrected);
    gb_json_close(out, '}');
}

static void render_clocks(struct gb_json_writer *out, const struct gb_health *h) {
    int i;

    gb_json_open(out, "clocks", '{');
    known(out, "sm_mhz", h->sm_mhz > 0 ? h->sm_mhz : NAN);
    known(out, "memory_mhz", h->memory_mhz > 0 ? h->memory_mhz : NAN);
    if (!h->has_reasons) {
        gb_json_put_null(out, "reasons");
    } else {
        gb_json_open(out, "reasons", '[');
        for (i = 0; i < GB_CLOCK_REASONS; i++) {
            if (h->reasons & 1u << i)
                gb_json_put_string(out, NULL, gb_clock_reason_name((enum gb_clock_reason)i));
        }
        gb_json_close(out, ']');
    }
    gb_json_close(out, '}');
}

static void render_processes(struct gb_json_writer *out, const struct gb_health *h) {
    unsigned i;

    if (!h->has_processes) {
        gb_json_put_null(out, "processes");
        return;
    }
    gb_json_open(out, "processes", '[');
    for (i = 0; i < h->process_count; i++) {
        const struct gb_health_process *p = &h->processes[i];

        gb_json_open(out, NULL, '{');
        gb_json_put_u64(out, "pid", p->pid);
        if (p->name[0] != '\0')
            gb_json_put_string(out, "name", p->name);
        else
            gb_json_put_null(out, "name");
        gb_json_put_limit(out, "used_bytes", p->used_bytes);
        gb_json_close(out, '}');
    }
    gb_json_close(out, ']');
    if (h->processes_more > 0)
        gb_json_put_u64(out, "processes_more", h->processes_more);
}

void gb_render_health(struct gb_json_writer *out, const struct gb_health *h) {
    gb_json_open(out, "health", '{');
    gb_json_put_string(out, "source", gb_health_source_name(h->source));
    if (h->reason[0] != '\0')
        gb_json_put_string(out, "reason", h->reason);
    if (h->at_us > 0)
        gb_json_put_time(out, "at", h->at_us);
    if (h->source != GB_HEALTH_NONE) {
        known(out, "gpu_utilization", h->gpu_utilization);
        known(out, "memory_utilization", h->memory_utilization);
        known(out, "temperature_c", h->temperature_c);
        known(out, "power_w", h->power_w);
        known(out, "power_limit_w", h->power_limit_w);
        render_ecc(out, h);
        render_clocks(out, h);
        render_processes(out, h);
    }
    gb_json_close(out, '}');
}
