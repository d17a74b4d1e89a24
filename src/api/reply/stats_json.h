/* Numbers as JSON that several replies have. */
#ifndef GB_API_REPLY_STATS_JSON_H
#define GB_API_REPLY_STATS_JSON_H

#include "base/json_writer.h"
#include "base/process.h"
#include "core/core.h"
#include "http/http.h"

struct gb_api;

/* Adds "failures_by_reason" to the object that is open: each reason that occurred. gb_render_failed takes the numbers
 * from the counters. */
void gb_render_failed(struct gb_json_writer *out, const struct gb_counters *counters, enum gb_failed what);
void gb_render_failures(struct gb_json_writer *out, const uint64_t failure[GB_FAILURES], enum gb_failed what);

/* Adds "current_bytes", "peak_bytes" and "largest_bytes". */
void gb_render_level(struct gb_json_writer *out, const struct gb_level_numbers *level);

/* Adds the level and all counts. */
void gb_render_memory(struct gb_json_writer *out, const struct gb_memory_numbers *memory);
/* Adds "allocations_by_kind": each kind of memory that was asked for. */
void gb_render_memory_kinds(struct gb_json_writer *out, const struct gb_memory_numbers memory[GB_KIND_COUNT]);

/* Add "http" and "process". */
void gb_render_server(struct gb_json_writer *out, const struct gb_http_server_stat *stat);
void gb_render_process(struct gb_json_writer *out, const struct gb_process *process);

/* Reads what the kernel knows of this process, and asks it at most every GB_RESPONSE_CACHE_AGE_NS. [any thread] */
void gb_api_process(struct gb_api *api, struct gb_process *ret);

#endif
