#include "api/reply/stats_json.h"

#include "api/context.h"
#include "api/reply/response_cache.h"
#include "base/clock.h"

void gb_render_failures(struct gb_json_writer *out, const uint64_t failure[GB_FAILURES], enum gb_failed what) {
    int why;

    gb_json_open(out, "failures_by_reason", '{');
    for (why = 0; why < GB_FAILURES; why++) {
        if (failure[why] > 0 && gb_failure_may((enum gb_failure)why, what))
            gb_json_put_u64(out, gb_failure_name((enum gb_failure)why), failure[why]);
    }
    gb_json_close(out, '}');
}

void gb_render_failed(struct gb_json_writer *out, const struct gb_counters *counters, enum gb_failed what) {
    uint64_t failure[GB_FAILURES];
    int why;

    for (why = 0; why < GB_FAILURES; why++)
        failure[why] = gb_counters_failed(counters, what, (enum gb_failure)why);
    gb_render_failures(out, failure, what);
}

void gb_render_level(struct gb_json_writer *out, const struct gb_level_numbers *level) {
    gb_json_put_u64(out, "current_bytes", level->bytes);
    gb_json_put_u64(out, "peak_bytes", level->peak_bytes);
    gb_json_put_u64(out, "largest_bytes", level->largest_bytes);
}

void gb_render_memory(struct gb_json_writer *out, const struct gb_memory_numbers *memory) {
    gb_render_level(out, &memory->level);
    gb_json_put_u64(out, "count", memory->allocations);
    gb_json_put_u64(out, "bytes", memory->allocated_bytes);
    gb_json_put_u64(out, "failures", memory->failures);
    gb_render_failures(out, memory->failure, GB_FAILED_KIND);
    gb_json_put_u64(out, "retries", memory->retries);
    gb_json_put_u64(out, "frees", memory->frees);
    gb_json_put_u64(out, "freed_bytes", memory->freed_bytes);
    gb_json_put_u64(out, "trims", memory->trims);
}

void gb_render_memory_kinds(struct gb_json_writer *out, const struct gb_memory_numbers memory[GB_KIND_COUNT]) {
    int kind;

    gb_json_open(out, "allocations_by_kind", '{');
    for (kind = 0; kind < GB_KIND_COUNT; kind++) {
        if (memory[kind].allocations + memory[kind].failures == 0)
            continue;
        gb_json_open(out, gb_kind_name((enum gb_kind)kind), '{');
        gb_render_memory(out, &memory[kind]);
        gb_json_close(out, '}');
    }
    gb_json_close(out, '}');
}

void gb_render_server(struct gb_json_writer *out, const struct gb_http_server_stat *stat) {
    gb_json_open(out, "http", '{');
    gb_json_put_u64(out, "connections", stat->connections);
    gb_json_put_u64(out, "suspended", stat->suspended);
    gb_json_put_u64(out, "transfers", stat->transfers);
    gb_json_put_u64(out, "listeners", stat->listeners);
    gb_json_put_u64(out, "requests", stat->requests);
    gb_json_put_u64(out, "accepted", stat->accepted);
    gb_json_put_u64(out, "refused", stat->refused);
    gb_json_close(out, '}');
}

void gb_render_process(struct gb_json_writer *out, const struct gb_process *process) {
    gb_json_open(out, "process", '{');
    gb_json_put_seconds(out, "cpu_seconds", process->cpu_ns);
    gb_json_put_u64(out, "resident_bytes", process->resident_bytes);
    gb_json_put_u64(out, "virtual_bytes", process->virtual_bytes);
    gb_json_put_u64(out, "open_fds", process->open_fds);
    gb_json_put_limit(out, "max_fds", process->max_fds);
    gb_json_close(out, '}');
}

void gb_api_process(struct gb_api *api, struct gb_process *ret) {
    struct gb_process_look *look = &api->process;
    uint64_t now_ns = gb_clock_ns();

    pthread_mutex_lock(&look->lock);
    if (look->at_ns == 0 || now_ns > look->at_ns + GB_RESPONSE_CACHE_AGE_NS) {
        gb_process_read(&look->process);
        look->at_ns = now_ns;
    }
    *ret = look->process;
    pthread_mutex_unlock(&look->lock);
}
