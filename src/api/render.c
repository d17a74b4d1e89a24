#include "api/render.h"

#include <stdio.h>

void gb_render_session(struct gb_out *out, const char *key, const struct gb_session_view *view) {
    const struct gb_session_rec *rec = &view->rec;

    gb_out_open(out, key, '{');
    gb_out_string(out, "name", rec->name.s);
    gb_out_raw(out, "labels", rec->labels[0] ? rec->labels : "{}");
    gb_out_open(out, "quota", '{');
    gb_out_limit(out, "bytes", rec->quota.bytes);
    gb_out_limit(out, "buffers", rec->quota.buffers);
    gb_out_limit(out, "pinned_bytes", rec->quota.pinned_bytes);
    gb_out_close(out, '}');
    gb_out_u64(out, "idle_ttl_s", rec->idle_ttl_s);
    gb_out_u64(out, "used_bytes", view->used_bytes);
    gb_out_u64(out, "buffers", view->buffers);
    gb_out_time(out, "created_at", rec->created_at_us);
    gb_out_time(out, "updated_at", rec->updated_at_us);
    gb_out_close(out, '}');
}

void gb_render_device_id(struct gb_out *out, const char *key, const struct gb_api *api, int device) {
    gb_out_open(out, key, '{');
    gb_out_i64(out, "index", device);
    gb_out_string(out, "uuid", device >= 0 && device < api->devices ? api->uuid[device] : "");
    gb_out_close(out, '}');
}

static void render_shape(struct gb_out *out, const char *key, const struct gb_shape *shape) {
    unsigned i;

    gb_out_open(out, key, '[');
    for (i = 0; i < shape->dims && i < GB_DIMS_MAX; i++)
        gb_out_u64(out, NULL, shape->dim[i]);
    gb_out_close(out, ']');
}

void gb_render_buffer(struct gb_out *out, const char *key, const struct gb_api *api, const char *session,
                      const struct gb_buffer_rec *rec) {
    char crc[12];

    gb_out_open(out, key, '{');
    gb_out_string(out, "name", rec->name.s);
    gb_out_string(out, "session", session);
    gb_out_u64(out, "bytes", rec->bytes);
    gb_out_string(out, "dtype", gb_dtype_name(rec->dtype));
    render_shape(out, "shape", &rec->shape);
    gb_out_string(out, "kind", gb_kind_name(rec->kind));
    gb_render_device_id(out, "device", api, rec->device);
    gb_out_string(out, "pool", rec->pool.s);
    gb_out_string(out, "stream", rec->stream.s);
    gb_out_string(out, "state", gb_buffer_state_name(rec->state));
    gb_out_i64(out, "generation", rec->generation);
    snprintf(crc, sizeof(crc), "%08x", (unsigned)rec->crc32c);
    if (rec->has_crc32c)
        gb_out_string(out, "crc32c", crc);
    else
        gb_out_null(out, "crc32c");
    gb_out_raw(out, "labels", rec->labels[0] ? rec->labels : "{}");
    gb_out_time(out, "created_at", rec->created_at_us);
    gb_out_time(out, "updated_at", rec->updated_at_us);
    gb_out_close(out, '}');
}

void gb_render_device(struct gb_out *out, const char *key, const struct gb_device_rec *rec) {
    char capability[16];
    int kind;

    gb_out_open(out, key, '{');
    gb_out_i64(out, "index", rec->index);
    gb_out_string(out, "uuid", rec->uuid);
    gb_out_string(out, "name", rec->name);
    gb_out_u64(out, "total_bytes", rec->total_bytes);
    gb_out_u64(out, "free_bytes", rec->free_bytes);
    gb_out_bool(out, "integrated", rec->integrated);
    gb_out_bool(out, "cpu_access", rec->cpu_access);
    snprintf(capability, sizeof(capability), "%d.%d", rec->compute_major % 1000, rec->compute_minor % 1000);
    if (rec->compute_major > 0)
        gb_out_string(out, "compute_capability", capability);
    else
        gb_out_null(out, "compute_capability");
    gb_out_open(out, "kinds", '{');
    for (kind = 0; kind < GB_KIND_COUNT; kind++) {
        const char *missing = rec->kind_missing[kind];

        gb_out_open(out, gb_kind_name((enum gb_kind)kind), '{');
        gb_out_bool(out, "supported", missing[0] == '\0');
        if (missing[0] != '\0')
            gb_out_string(out, "reason", missing);
        gb_out_close(out, '}');
    }
    gb_out_close(out, '}');
    gb_out_close(out, '}');
}

void gb_render_pool(struct gb_out *out, const char *key, const struct gb_api *api, const struct gb_pool_view *view) {
    gb_out_open(out, key, '{');
    gb_out_string(out, "name", view->name.s);
    gb_render_device_id(out, "device", api, view->device);
    if (view->config.max_bytes == 0)
        gb_out_null(out, "max_bytes");
    else
        gb_out_u64(out, "max_bytes", view->config.max_bytes);
    gb_out_limit(out, "release_threshold_bytes", view->config.release_threshold_bytes);
    gb_out_open(out, "reuse", '{');
    gb_out_bool(out, "follow_event_dependencies", view->config.follow_event_dependencies);
    gb_out_bool(out, "allow_opportunistic", view->config.allow_opportunistic);
    gb_out_bool(out, "allow_internal_dependencies", view->config.allow_internal_dependencies);
    gb_out_close(out, '}');
    gb_out_bool(out, "exportable", view->config.exportable);
    gb_out_u64(out, "used_bytes", view->stat.used_bytes);
    gb_out_u64(out, "used_peak_bytes", view->stat.used_peak_bytes);
    gb_out_u64(out, "reserved_bytes", view->stat.reserved_bytes);
    gb_out_u64(out, "reserved_peak_bytes", view->stat.reserved_peak_bytes);
    gb_out_u64(out, "allocations", view->allocations);
    gb_out_u64(out, "frees", view->frees);
    gb_out_u64(out, "failures", view->failures);
    gb_out_close(out, '}');
}

void gb_render_stream(struct gb_out *out, const char *key, const char *session, const char *stream) {
    gb_out_open(out, key, '{');
    gb_out_string(out, "name", stream);
    gb_out_string(out, "session", session);
    gb_out_close(out, '}');
}

static void render_direction(struct gb_out *out, const char *key, uint64_t count, uint64_t bytes, uint64_t ns,
                             uint64_t copy_ns, uint64_t queue_ns, uint64_t failed) {
    gb_out_open(out, key, '{');
    gb_out_u64(out, "count", count);
    gb_out_u64(out, "bytes", bytes);
    gb_out_seconds(out, "seconds", ns);
    gb_out_seconds(out, "seconds_copying", copy_ns);
    gb_out_seconds(out, "seconds_queued", queue_ns);
    gb_out_u64(out, "failures", failed);
    gb_out_close(out, '}');
}

void gb_render_counters(struct gb_out *out, const struct gb_counters *c) {
    gb_out_open(out, "transfers", '{');
    render_direction(out, "upload", c->uploads, c->upload_bytes, c->upload_ns, c->upload_copy_ns, c->upload_queue_ns,
                     c->uploads_failed);
    render_direction(out, "download", c->downloads, c->download_bytes, c->download_ns, c->download_copy_ns,
                     c->download_queue_ns, c->downloads_failed);
    gb_out_close(out, '}');
    gb_out_open(out, "allocations", '{');
    gb_out_u64(out, "count", c->allocations);
    gb_out_u64(out, "bytes", c->allocated_bytes);
    gb_out_u64(out, "failures", c->allocation_failures);
    gb_out_u64(out, "retries", c->allocation_retries);
    gb_out_u64(out, "frees", c->frees);
    gb_out_u64(out, "freed_bytes", c->freed_bytes);
    gb_out_u64(out, "trims", c->trims);
    gb_out_close(out, '}');
}

void gb_render_list_open(struct gb_out *out) {
    gb_out_open(out, NULL, '{');
    gb_out_open(out, "items", '[');
}

void gb_render_list_close(struct gb_out *out, bool more, int64_t last_id) {
    char cursor[GB_CURSOR_SIZE];

    gb_out_close(out, ']');
    if (more)
        gb_out_string(out, "next_cursor", gb_cursor_text(last_id, cursor));
    else
        gb_out_null(out, "next_cursor");
    gb_out_close(out, '}');
}
