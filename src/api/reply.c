/* How a reply is made: records and numbers as JSON; the text sent at once, kept for many clients, or made on a thread
 * of the core; and the time that a transfer took. Handlers of all resources call these. */
#include "api/reply.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/context.h"
#include "base/clock.h"
#include "base/container.h"
#include "base/encoding.h"
#include "base/error.h"
#include "base/hash.h"
#include "base/thread.h"

/* --- render ------------------------------------------------------------------------------------------------------- */

/* Records and numbers as JSON. Nothing waits here, and nothing is kept. */

/* --- numbers ------------------------------------------------------------------------------------------------------ */

void gb_render_failures(struct gb_json_writer *out, const uint64_t failure[GB_FAILURES], enum gb_failed what) {
    int why;

    gb_json_open(out, "failures_by_reason", '{');
    for (why = 0; why < GB_FAILURES; why++) {
        if (failure[why] > 0 && gb_failure_may((enum gb_failure)why, what))
            gb_json_put_u64(out, gb_failure_name((enum gb_failure)why), failure[why]);
    }
    gb_json_close(out, '}');
}

/* Adds "failures_by_reason" to the object that is open: each reason that occurred. render_failed takes the numbers
 * from the counters. */
static void render_failed(struct gb_json_writer *out, const struct gb_counters *counters, enum gb_failed what) {
    uint64_t failure[GB_FAILURES];
    int why;

    for (why = 0; why < GB_FAILURES; why++)
        failure[why] = gb_counters_failed(counters, what, (enum gb_failure)why);
    gb_render_failures(out, failure, what);
}

/* Adds "current_bytes", "peak_bytes" and "largest_bytes". */
static void render_level(struct gb_json_writer *out, const struct gb_level_numbers *level) {
    gb_json_put_u64(out, "current_bytes", level->bytes);
    gb_json_put_u64(out, "peak_bytes", level->peak_bytes);
    gb_json_put_u64(out, "largest_bytes", level->largest_bytes);
}

void gb_render_memory(struct gb_json_writer *out, const struct gb_memory_numbers *memory) {
    render_level(out, &memory->level);
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

/* --- records ------------------------------------------------------------------------------------------------------ */

void gb_render_owned(struct gb_json_writer *out, const struct gb_fleet_session *session) {
    size_t i;

    if (session->failover_after_s > 0)
        gb_json_put_u64(out, "failover_after_s", session->failover_after_s);
    if (session->tenant.s[0] != '\0')
        gb_json_put_string(out, "tenant", session->tenant.s);
    if (session->replicas == 0 && session->holder_count == 0)
        return;
    gb_json_put_u64(out, "replicas", session->replicas);
    gb_json_open(out, "holders", '[');
    for (i = 0; i < session->holder_count; i++)
        gb_json_put_string(out, NULL, session->holders[i].node.s);
    gb_json_close(out, ']');
}

static void render_registered(struct gb_json_writer *out, const struct gb_session_rec *rec) {
    struct gb_fleet_session is = {
        .failover_after_s = rec->failover_after_s, .tenant = rec->tenant, .replicas = rec->replicas};

    gb_json_put_string(out, "on_partition", rec->stops_on_partition ? "stop" : "serve");
    gb_fleet_holders_read(gb_text_s(rec->holders), &is);
    gb_render_owned(out, &is);
}

static void render_registration(struct gb_json_writer *out, const struct gb_session_rec *rec) {
    if (rec->fleet_epoch == 0 && rec->aside_epoch == 0) {
        gb_json_put_null(out, "fleet");
        return;
    }
    gb_json_open(out, "fleet", '{');
    if (rec->fleet_epoch == 0)
        gb_json_put_bool(out, "superseded", true);
    gb_json_put_i64(out, "epoch", rec->fleet_epoch == 0 ? rec->aside_epoch : rec->fleet_epoch);
    if (rec->fleet_epoch > 0)
        render_registered(out, rec);
    gb_json_close(out, '}');
}

/* By the types of fields. */
#define GB_JSON_PUT_flag(out, key, v) gb_json_put_bool(out, key, v)
#define GB_JSON_PUT_u64(out, key, v) gb_json_put_u64(out, key, v)
#define GB_JSON_PUT_limit(out, key, v) gb_json_put_limit(out, key, v)
#define GB_JSON_PUT_maximum(out, key, v) gb_json_put_limit(out, key, (v) == 0 ? GB_UNLIMITED : (v))
#define GB_JSON_PUT_priority(out, key, v) gb_json_put_i64(out, key, v)
#define GB_JSON_PUT_phrase(out, key, v) gb_json_put_string(out, key, (v).s)
#define GB_JSON_PUT_labels(out, key, v) gb_json_put_raw(out, key, gb_labels_text(v))
#define GB_JSON_PUT_durability(out, key, v) gb_json_put_string(out, key, gb_durability_name(v))
#define GB_JSON_PUT_spill(out, key, v) gb_json_put_string(out, key, gb_spill_name(v))

static void render_pool_name(void *out, const struct gb_name *pool) {
    gb_json_put_string(out, NULL, pool ? pool->s : NULL);
}

void gb_render_session(struct gb_json_writer *out, const char *key, const struct gb_api *api,
                       const struct gb_session_view *view) {
    const struct gb_session_rec *rec = &view->rec;

    gb_json_open(out, key, '{');
    gb_json_put_string(out, "name", rec->name.s);
#define SHOW_PLACE(type, key, v)
#define SHOW_FLEET(type, key, v)
#define SHOW_KEPT(type, key, v)
#define SHOW_SET(type, key, v) GB_JSON_PUT_##type(out, key, v);
#define GB_SESSION_FIELD(name, type, how, ...) SHOW_##how(type, #name, rec->name)
#define GB_SESSION_QUOTA(name, type, ...) GB_JSON_PUT_##type(out, #name, rec->quota.name);
#define GB_SESSION_QUOTA_BEGIN gb_json_open(out, "quota", '{');
#define GB_SESSION_QUOTA_END gb_json_close(out, '}');
#include "model/session.def"
    gb_json_put_string(out, "pool", view->pool.s);
    gb_json_open(out, "current_pools", '[');
    gb_session_current_pools(api->core, rec->id, render_pool_name, out);
    gb_json_close(out, ']');
    gb_json_put_u64(out, "used_bytes", view->used_bytes);
    gb_json_put_u64(out, "used_pinned_bytes", view->used_pinned_bytes);
    gb_json_put_u64(out, "used_stored_bytes", view->used_stored_bytes);
    gb_json_put_u64(out, "buffers", view->buffers);
    gb_json_put_time(out, "created_at", rec->created_at_us);
    gb_json_put_time(out, "updated_at", rec->updated_at_us);
    render_registration(out, rec);
    gb_json_close(out, '}');
}

void gb_render_device_id(struct gb_json_writer *out, const char *key, const struct gb_api *api, int device) {
    gb_json_open(out, key, '{');
    gb_json_put_i64(out, "index", device);
    gb_json_put_string(out, "uuid", device >= 0 && device < api->devices ? api->uuid[device] : "");
    gb_json_close(out, '}');
}

void gb_render_shape(struct gb_json_writer *out, const char *key, const struct gb_shape *shape) {
    unsigned i;

    gb_json_open(out, key, '[');
    for (i = 0; i < shape->dims && i < GB_DIMS_MAX; i++)
        gb_json_put_u64(out, NULL, shape->dim[i]);
    gb_json_close(out, ']');
}

/* The memory of one side, and whether it has the newest bytes. */
static void render_side(struct gb_json_writer *out, const struct gb_buffer_rec *rec, enum gb_side side) {
    const struct gb_side_rec *memory = &rec->sides[side];

    gb_json_open(out, side == GB_SIDE_HOST ? "host" : "device", '{');
    gb_json_put_u64(out, "bytes", memory->bytes);
    gb_json_put_bool(out, "current", gb_side_current(rec->head, side));
    gb_json_put_bool(out, "owned", !memory->adopted);
    if (side == GB_SIDE_HOST)
        gb_json_put_bool(out, "pinned", memory->pinned);
    gb_json_close(out, '}');
}

static void render_sides(struct gb_json_writer *out, const struct gb_buffer_rec *rec) {
    if (!rec->mirrored) {
        gb_json_put_null(out, "sides");
        return;
    }
    gb_json_open(out, "sides", '{');
    render_side(out, rec, GB_SIDE_HOST);
    render_side(out, rec, GB_SIDE_DEVICE);
    gb_json_close(out, '}');
}

/* Where the bytes are that a read would get. */
static void render_tier(struct gb_json_writer *out, const struct gb_buffer_rec *rec) {
    bool host =
        rec->mirrored ? rec->head == GB_HEAD_HOST : rec->kind == GB_KIND_PINNED || rec->kind == GB_KIND_PAGEABLE;

    if (rec->state == GB_BUFFER_STORED)
        gb_json_put_string(out, "tier", rec->in_host ? "host" : "disk");
    else if (rec->state == GB_BUFFER_LOST)
        gb_json_put_null(out, "tier");
    else
        gb_json_put_string(out, "tier", host ? "host" : "device");
}

void gb_render_buffer_members(struct gb_json_writer *out, const struct gb_api *api, const char *session,
                              const struct gb_buffer_rec *rec) {
    char crc[9];

    gb_json_put_string(out, "name", rec->name.s);
    gb_json_put_string(out, "session", session);
    gb_json_put_u64(out, "bytes", rec->bytes);
    gb_json_put_string(out, "dtype", gb_dtype_name(rec->dtype));
    gb_render_shape(out, "shape", &rec->shape);
    gb_json_put_string(out, "kind", gb_kind_name(rec->kind));
    gb_render_device_id(out, "device", api, rec->device);
    gb_json_put_string(out, "pool", rec->kind == GB_KIND_DEVICE ? rec->pool.s : NULL);
    gb_json_put_string(out, "stream", rec->stream.s);
    gb_json_put_bool(out, "mirrored", rec->mirrored);
    gb_json_put_string(out, "head", rec->mirrored ? gb_head_name(rec->head) : NULL);
    render_sides(out, rec);
    gb_json_put_string(out, "state", gb_buffer_state_name(rec->state));
    render_tier(out, rec);
    gb_json_put_i64(out, "generation", rec->generation);
    gb_json_put_string(out, "durability", gb_durability_name(rec->durability));
    if (rec->stored_generation > 0)
        gb_json_put_i64(out, "stored_generation", rec->stored_generation);
    else
        gb_json_put_null(out, "stored_generation");
    gb_json_put_bool(out, "damaged", rec->damaged);
    gb_json_put_string(out, "spill", gb_spill_name(rec->spill));
    gb_json_put_bool(out, "resident", rec->resident);
    *gb_digits_hex(crc, rec->crc32c, 8) = '\0';
    gb_json_put_string(out, "crc32c", rec->has_crc32c ? crc : NULL);
    gb_json_put_bool(out, "sealed", rec->sealed);
    gb_json_put_string(out, "link", rec->link.s[0] != '\0' ? rec->link.s : NULL);
    gb_json_put_bool(out, "adopted", rec->adopted);
    gb_json_put_u64(out, "leases", rec->leases);
    gb_json_put_bool(out, "escaped", rec->tainted);
    gb_json_put_raw(out, "labels", gb_labels_text(rec->labels));
    gb_json_put_time(out, "created_at", rec->created_at_us);
    gb_json_put_time(out, "updated_at", rec->updated_at_us);
}

void gb_render_buffer(struct gb_json_writer *out, const char *key, const struct gb_api *api, const char *session,
                      const struct gb_buffer_rec *rec) {
    gb_json_open(out, key, '{');
    gb_render_buffer_members(out, api, session, rec);
    gb_json_close(out, '}');
}

void gb_render_pool_members(struct gb_json_writer *out, const struct gb_api *api, const struct gb_pool_view *view) {
    gb_json_put_string(out, "name", view->rec.name.s);
    gb_render_device_id(out, "device", api, view->rec.device);
    gb_json_put_string(out, "state", view->lost ? "lost" : "ready");
#define PUT_PLACE(type, key, v)
#define PUT_FIXED(type, key, v) GB_JSON_PUT_##type(out, key, v);
#define PUT_SET(type, key, v) GB_JSON_PUT_##type(out, key, v);
#define GB_POOL_FIELD(name, type, how, ...) PUT_##how(type, #name, view->rec.name)
#define GB_POOL_CONFIG(name, type, how, ...) PUT_##how(type, #name, view->rec.config.name)
#define GB_POOL_REUSE_BEGIN gb_json_open(out, "reuse", '{');
#define GB_POOL_REUSE_END gb_json_close(out, '}');
#include "model/pool.def"
    gb_json_put_bool(out, "exported", view->exported);
    gb_json_put_u64(out, "kept_bytes", view->kept_bytes);
    gb_json_put_u64(out, "first_use_bytes", view->first_use_bytes);
    gb_json_put_u64(out, "used_bytes", view->stat.used_bytes);
    gb_json_put_u64(out, "used_peak_bytes", view->stat.used_peak_bytes);
    gb_json_put_u64(out, "reserved_bytes", view->stat.reserved_bytes);
    gb_json_put_u64(out, "reserved_peak_bytes", view->stat.reserved_peak_bytes);
    gb_json_put_u64(out, "buffers", view->live_buffers);
    gb_json_put_u64(out, "allocations", view->memory.allocations);
    gb_json_put_u64(out, "reuses", view->reuses);
    gb_json_put_u64(out, "growths", view->growths);
    gb_json_put_u64(out, "allocated_bytes", view->memory.allocated_bytes);
    gb_json_put_u64(out, "largest_bytes", view->memory.level.largest_bytes);
    gb_json_put_u64(out, "frees", view->memory.frees);
    gb_json_put_u64(out, "freed_bytes", view->memory.freed_bytes);
    gb_json_put_u64(out, "failures", view->memory.failures);
    gb_render_failures(out, view->memory.failure, GB_FAILED_POOL);
    gb_json_put_u64(out, "retries", view->memory.retries);
    gb_json_put_u64(out, "trims", view->memory.trims);
    /* Null for pools that no client made: they have no record with times. */
    gb_json_put_time_or_null(out, "created_at", view->rec.created_at_us);
    gb_json_put_time_or_null(out, "updated_at", view->rec.updated_at_us);
}

void gb_render_pool(struct gb_json_writer *out, const char *key, const struct gb_api *api,
                    const struct gb_pool_view *view) {
    gb_json_open(out, key, '{');
    gb_render_pool_members(out, api, view);
    gb_json_close(out, '}');
}

void gb_render_stream(struct gb_json_writer *out, const char *key, const char *session,
                      const struct gb_stream_view *view) {
    gb_json_open(out, key, '{');
    gb_json_put_string(out, "name", view->name.s);
    gb_json_put_string(out, "session", session);
    gb_json_put_bool(out, "busy", view->busy);
    gb_json_put_u64(out, "devices", view->devices);
    gb_json_put_time(out, "created_at", view->created_at_us);
    gb_json_close(out, '}');
}

void gb_render_event(struct gb_json_writer *out, const char *key, const char *session,
                     const struct gb_event_view *view) {
    gb_json_open(out, key, '{');
    gb_json_put_string(out, "name", view->name.s);
    gb_json_put_string(out, "session", session);
    gb_json_put_bool(out, "recorded", view->recorded);
    gb_json_put_bool(out, "done", view->done);
    gb_json_put_string(out, "stream", view->recorded ? view->stream.s : NULL);
    gb_json_put_time(out, "created_at", view->created_at_us);
    gb_json_close(out, '}');
}

/* Copying and waiting are counted apart, and by kind of memory, because each kind is copied at another speed. */
static void render_kinds(struct gb_json_writer *out, const struct gb_kind_counters *kinds) {
    int kind;

    gb_json_open(out, "kinds", '{');
    for (kind = 0; kind < GB_KIND_COUNT; kind++) {
        gb_json_open(out, gb_kind_name((enum gb_kind)kind), '{');
        gb_json_put_u64(out, "count", kinds[kind].count);
        gb_json_put_u64(out, "bytes", kinds[kind].bytes);
        gb_json_put_seconds(out, "seconds_copying", kinds[kind].copy_ns);
        gb_json_put_seconds(out, "seconds_queued", kinds[kind].queue_ns);
        gb_json_close(out, '}');
    }
    gb_json_close(out, '}');
}

/* Opens an object; close_direction closes it. */
static void open_direction(struct gb_json_writer *out, const char *key, uint64_t count, uint64_t bytes,
                           uint64_t copy_ns, uint64_t queue_ns) {
    gb_json_open(out, key, '{');
    gb_json_put_u64(out, "count", count);
    gb_json_put_u64(out, "bytes", bytes);
    gb_json_put_seconds(out, "seconds_copying", copy_ns);
    gb_json_put_seconds(out, "seconds_queued", queue_ns);
}

static void close_direction(struct gb_json_writer *out, uint64_t ns, uint64_t failed, const struct gb_counters *c,
                            enum gb_failed what, const struct gb_kind_counters *kinds) {
    gb_json_put_seconds(out, "seconds", ns);
    gb_json_put_u64(out, "failures", failed);
    render_failed(out, c, what);
    if (kinds)
        render_kinds(out, kinds);
    gb_json_close(out, '}');
}

static void render_transfers(struct gb_json_writer *out, const struct gb_counters *c,
                             const struct gb_kind_counters kinds[GB_DIRECTION_COUNT][GB_KIND_COUNT]) {
    gb_json_open(out, "transfers", '{');
    open_direction(out, "upload", c->uploads, c->upload_bytes, c->upload_copy_ns, c->upload_queue_ns);
    close_direction(out, c->upload_ns, c->uploads_failed, c, GB_FAILED_UPLOAD, kinds ? kinds[GB_UPLOAD] : NULL);
    open_direction(out, "download", c->downloads, c->download_bytes, c->download_copy_ns, c->download_queue_ns);
    close_direction(out, c->download_ns, c->downloads_failed, c, GB_FAILED_DOWNLOAD, kinds ? kinds[GB_DOWNLOAD] : NULL);
    open_direction(out, "copy", c->device_copies, c->device_copy_bytes, c->device_copy_ns, c->device_copy_queue_ns);
    gb_json_close(out, '}');
    gb_json_open(out, "fill", '{');
    gb_json_put_u64(out, "count", c->fills);
    gb_json_put_u64(out, "bytes", c->fill_bytes);
    gb_json_close(out, '}');
    gb_json_open(out, "mirror", '{');
    gb_json_put_u64(out, "copies", c->mirror_copies);
    gb_json_put_u64(out, "copies_avoided", c->mirror_copies_avoided);
    gb_json_put_u64(out, "bytes", c->mirror_copy_bytes);
    gb_json_close(out, '}');
    gb_json_close(out, '}');
}

void gb_render_counters(struct gb_json_writer *out, const struct gb_counters *c, const struct gb_level_numbers *level,
                        const struct gb_kind_counters kinds[GB_DIRECTION_COUNT][GB_KIND_COUNT]) {
    render_transfers(out, c, kinds);
    gb_json_open(out, "allocations", '{');
    render_level(out, level);
    gb_json_put_u64(out, "count", c->allocations);
    gb_json_put_u64(out, "bytes", c->allocated_bytes);
    gb_json_put_u64(out, "failures", c->allocation_failures);
    render_failed(out, c, GB_FAILED_ALLOCATION);
    gb_json_put_u64(out, "retries", c->allocation_retries);
    gb_json_put_u64(out, "frees", c->frees);
    gb_json_put_u64(out, "freed_bytes", c->freed_bytes);
    gb_json_put_u64(out, "trims", c->trims);
    gb_json_close(out, '}');
}

void gb_render_sharing(struct gb_json_writer *out, const struct gb_counters *c, uint64_t leases, uint64_t held_bytes,
                       uint64_t adopted) {
    gb_json_open(out, "sharing", '{');
    gb_json_put_u64(out, "leases", leases);
    gb_json_put_u64(out, "held_bytes", held_bytes);
    gb_json_put_u64(out, "adopted", adopted);
    gb_json_put_u64(out, "maps", c->maps);
    gb_json_put_u64(out, "unmaps", c->unmaps);
    gb_json_close(out, '}');
}

void gb_render_list_open(struct gb_json_writer *out) {
    gb_json_open(out, NULL, '{');
    gb_json_open(out, "items", '[');
}

bool gb_render_list_full(const struct gb_json_writer *out) {
    return out->used >= GB_LIST_BYTES;
}

void gb_render_list_close(struct gb_json_writer *out, const char *cursor) {
    gb_json_close(out, ']');
    if (cursor)
        gb_json_put_string(out, "next_cursor", cursor);
    else
        gb_json_put_null(out, "next_cursor");
    gb_json_close(out, '}');
}

/* --- health of devices -------------------------------------------------------------------------------------------- */

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

/* --- the state of the storage ------------------------------------------------------------------------------------- */

enum gb_disk_state gb_storage_state(const struct gb_storage_numbers *n, const struct gb_error **ret_why) {
    bool commits_fail = !n->commits && n->disk.state == GB_DISK_READY;

    *ret_why = commits_fail ? &n->commit_error : &n->disk.error;
    return commits_fail ? GB_DISK_FAILED : n->disk.state;
}

/* --- at once ------------------------------------------------------------------------------------------------------ */

int gb_json_reply(struct gb_json_writer *out, struct gb_http_response *response, int status, struct gb_error *err) {
    gb_json_end(out);
    if (out->failed) {
        gb_json_done(out);
        return gb_error_memory(err, "reply");
    }
    if (gb_http_response_header(response, err, "Content-Type", "application/json") < 0) {
        gb_json_done(out);
        return -1;
    }
    response->status = status;
    gb_http_response_take(response, out->s, out->used);
    *out = (struct gb_json_writer){0};
    return 0;
}

enum gb_step gb_reply_json(struct gb_json_writer *out, int status, struct gb_http_response *response,
                           struct gb_error *err) {
    return gb_json_reply(out, response, status, err) < 0 ? GB_STEP_ERROR : GB_STEP_REPLY;
}

enum gb_step gb_reply_tagged(struct gb_json_writer *out, char kind, struct gb_http_response *response,
                             struct gb_error *err) {
    struct gb_http_canned *canned = NULL;
    char tag[40];

    gb_json_end(out);
    if (!out->failed) {
        snprintf(tag, sizeof(tag), "\"%c%08" PRIx32 "-%zx\"", kind, gb_crc32c(0, out->s, out->used), out->used);
        canned = gb_http_canned_new(200, "application/json", tag, out->s, out->used);
    }
    gb_json_done(out);
    if (!canned) {
        gb_error_memory(err, "reply");
        return GB_STEP_ERROR;
    }
    gb_http_response_canned(response, canned);
    return GB_STEP_REPLY;
}

/* --- kept replies ------------------------------------------------------------------------------------------------- */

struct gb_response_cache *gb_response_cache_new(void) {
    struct gb_response_cache *cache = calloc(1, sizeof(*cache));

    if (cache)
        gb_mutex_init(&cache->lock);
    return cache;
}

void gb_response_cache_free(struct gb_response_cache *cache) {
    if (!cache)
        return;
    gb_http_canned_unref(cache->canned);
    free(cache->text);
    pthread_mutex_destroy(&cache->lock);
    free(cache);
}

struct gb_http_canned *gb_response_cache_get(struct gb_response_cache *cache, uint64_t sequence, uint64_t now_ns) {
    struct gb_http_canned *canned = NULL;

    pthread_mutex_lock(&cache->lock);
    /* Another thread may have put a newer text than the caller knows of. */
    if (cache->canned && cache->sequence >= sequence && now_ns < cache->built_ns + GB_RESPONSE_CACHE_AGE_NS)
        canned = gb_http_canned_ref(cache->canned);
    pthread_mutex_unlock(&cache->lock);
    return canned;
}

/* Puts the text into the cache when it is newer than the text there. */
static struct gb_http_canned *swap_locked(struct gb_response_cache *cache, uint64_t sequence, uint64_t now_ns,
                                          int64_t epoch, struct gb_json_writer *out, size_t stable_bytes) {
    struct gb_http_canned *fresh;
    char etag[sizeof(cache->etag)];
    bool same = cache->canned && cache->len == stable_bytes && memcmp(cache->text, out->s, stable_bytes) == 0;

    if (cache->canned && cache->sequence > sequence)
        return gb_http_canned_ref(cache->canned);
    if (!same || stable_bytes < out->used) {
        snprintf(etag, sizeof(etag), "W/\"%" PRIx64 ".%" PRIu64 ".%" PRIu64 "\"", (uint64_t)epoch, sequence,
                 cache->revision + 1);
        fresh = gb_http_canned_new(200, "application/json", same ? cache->etag : etag, out->s, out->used);
        if (!fresh)
            return NULL;
        if (!same) {
            memcpy(cache->etag, etag, sizeof(etag));
            cache->revision++;
        }
        gb_http_canned_unref(cache->canned);
        free(cache->text);
        cache->canned = fresh;
        cache->text = out->s;
        cache->len = stable_bytes;
        *out = (struct gb_json_writer){0};
    }
    cache->sequence = sequence;
    cache->built_ns = now_ns;
    return gb_http_canned_ref(cache->canned);
}

struct gb_http_canned *gb_response_cache_put(struct gb_response_cache *cache, uint64_t sequence, uint64_t now_ns,
                                             int64_t epoch, struct gb_json_writer *out, size_t stable_bytes) {
    struct gb_http_canned *canned = NULL;

    if (!out->failed) {
        pthread_mutex_lock(&cache->lock);
        canned = swap_locked(cache, sequence, now_ns, epoch, out, stable_bytes);
        pthread_mutex_unlock(&cache->lock);
    }
    gb_json_done(out);
    return canned;
}

/* --- on a thread of the core -------------------------------------------------------------------------------------- */

static void unref(void *arg) {
    struct gb_deferred *d = arg;

    if (atomic_fetch_sub(&d->refs, 1) == 1)
        d->release(d);
}

static void run(struct gb_core_task *work) {
    struct gb_deferred *d = gb_container_of(work, struct gb_deferred, work);
    struct gb_http_request *request = d->request;

    /* If one reference is left, the request has ended. */
    if (atomic_load(&d->left))
        gb_error_set(&d->error, GB_ERR_CANCELLED, "the client has gone");
    else if (atomic_load(&d->refs) > 1 && d->make(d, &d->error) < 0 && d->error.code == GB_OK)
        gb_error_set(&d->error, GB_ERR_SATURATED, "no memory for the reply; try again later");
    atomic_store(&d->finished, true);
    gb_http_wake(request);
    unref(d);
    gb_http_request_unref(request); /* the server, and what release uses, lives until then */
}

static enum gb_step resume(struct gb_http_request *request, struct gb_http_response *response, struct gb_error *err) {
    struct gb_deferred *d = request->state;

    if (!atomic_load(&d->finished)) {
        if (!request->timed_out)
            return GB_STEP_WAIT;
        gb_error_set(err, GB_ERR_TIMED_OUT, "the answer was not ready in the permitted time");
    } else if (d->error.code == GB_OK) {
        return d->reply(d, request, response, err);
    } else {
        *err = d->error;
    }
    gb_http_response_done(response); /* its headers belong to another reply */
    return GB_STEP_ERROR;
}

/* Nothing has changed, so that nothing needs to be undone. */
static bool cancel(struct gb_http_request *request, bool act) {
    struct gb_deferred *d = request->state;

    if (act)
        atomic_store(&d->left, true);
    return true;
}

enum gb_step gb_deferred_start(struct gb_http_request *request, struct gb_deferred *deferred) {
    atomic_init(&deferred->refs, 2);
    atomic_init(&deferred->left, false);
    atomic_init(&deferred->finished, false);
    deferred->api = gb_api_of(request);
    deferred->work.run = run;
    deferred->request = gb_http_request_ref(request);
    request->state = deferred;
    request->state_free = unref;
    request->resume = resume;
    request->cancel = cancel;
    gb_core_run_task(deferred->api->core, &deferred->work);
    return GB_STEP_WAIT;
}

/* --- Server-Timing ------------------------------------------------------------------------------------------------ */

/* Four metrics with their numbers. */
#define TEXT_SIZE 160

/* One metric: milliseconds with three decimals. Returns the end of what was written. */
static char *put(char *at, const char *name, double ms) {
    uint64_t us = ms > 0 ? (uint64_t)(ms * 1000 + 0.5) : 0;

    at = stpcpy(stpcpy(at, name), ";dur=");
    at = gb_digits(at, us / 1000);
    *at++ = '.';
    at = gb_digits_padded(at, us % 1000, 3);
    *at = '\0';
    return at;
}

static double ms_since(const struct gb_http_request *request, uint64_t now_ns) {
    return (double)(now_ns - request->started_ns) / GB_NS_PER_MS;
}

static int add(const struct gb_http_request *request, const struct gb_transfer_times *times, char *text, char *at,
               struct gb_http_response *response, struct gb_error *err) {
    if (!times->sampled) { /* else they are another's */
        at = put(at, "queue", times->queue_ms);
        at = put(stpcpy(at, ", "), "copy", times->copy_ms);
        at = stpcpy(at, ", ");
    }
    put(at, "total", ms_since(request, gb_clock_ns()));
    return gb_http_response_header(response, err, "Server-Timing", "%s", text);
}

int gb_add_timing(const struct gb_http_request *request, const struct gb_transfer_times *times,
                  struct gb_http_response *response, struct gb_error *err) {
    char text[TEXT_SIZE];

    return add(request, times, text, text, response, err);
}

int gb_add_upload_timing(const struct gb_http_request *request, const struct gb_transfer_times *times, uint64_t recv_ns,
                         struct gb_http_response *response, struct gb_error *err) {
    char text[TEXT_SIZE];
    char *at = put(text, "recv", ms_since(request, recv_ns));

    return add(request, times, text, stpcpy(at, ", "), response, err);
}
