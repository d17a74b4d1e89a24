/* The fault decorator's operations: each asks the plan first, then goes to the backend below. */
#include "backend/fault/internal.h"

static int device_count(struct gb_backend *be) {
    return gb_backend_device_count(gb_fault_of(be)->inner);
}

static int device_get(struct gb_backend *be, int device, struct gb_device_rec *ret, struct gb_error *err) {
    struct fault *f = gb_fault_of(be);

    return gb_fault_meet(f, GB_FAULT_device_get, err) < 0 ? -1 : gb_backend_device_get(f->inner, device, ret, err);
}

static int peer_get(struct gb_backend *be, int device, int peer, struct gb_peer_rec *ret, struct gb_error *err) {
    struct fault *f = gb_fault_of(be);

    return gb_fault_meet(f, GB_FAULT_peer_get, err) < 0 ? -1 : gb_peer_get(f->inner, device, peer, ret, err);
}

static int pin_alloc(struct gb_backend *be, size_t bytes, void **ret, struct gb_error *err) {
    struct fault *f = gb_fault_of(be);

    return gb_fault_meet(f, GB_FAULT_pin_alloc, err) < 0 ? -1 : gb_pin_alloc(f->inner, bytes, ret, err);
}

static void pin_free(struct gb_backend *be, void *ptr) {
    struct fault *f = gb_fault_of(be);

    (void)gb_fault_meet(f, GB_FAULT_pin_free, NULL);
    gb_pin_free(f->inner, ptr);
}

static int pool_default(struct gb_backend *be, int device, struct gb_pool **ret, struct gb_error *err) {
    struct fault *f = gb_fault_of(be);

    return gb_fault_meet(f, GB_FAULT_pool_default, err) < 0 ? -1 : gb_pool_default(f->inner, device, ret, err);
}

static int pool_create(struct gb_backend *be, int device, const struct gb_pool_config *config, struct gb_pool **ret,
                       struct gb_error *err) {
    struct fault *f = gb_fault_of(be);

    return gb_fault_meet(f, GB_FAULT_pool_create, err) < 0 ? -1 : gb_pool_create(f->inner, device, config, ret, err);
}

static void pool_destroy(struct gb_backend *be, struct gb_pool *pool) {
    struct fault *f = gb_fault_of(be);

    (void)gb_fault_meet(f, GB_FAULT_pool_destroy, NULL);
    gb_pool_destroy(f->inner, pool);
}

static int pool_config(struct gb_backend *be, struct gb_pool *pool, struct gb_pool_config *ret, struct gb_error *err) {
    struct fault *f = gb_fault_of(be);

    return gb_fault_meet(f, GB_FAULT_pool_config, err) < 0 ? -1 : f->inner->ops->pool_config(f->inner, pool, ret, err);
}

static int pool_configure(struct gb_backend *be, struct gb_pool *pool, const struct gb_pool_config *config,
                          struct gb_error *err) {
    struct fault *f = gb_fault_of(be);

    return gb_fault_meet(f, GB_FAULT_pool_configure, err) < 0 ? -1 : gb_pool_configure(f->inner, pool, config, err);
}

static int pool_stat(struct gb_backend *be, struct gb_pool *pool, struct gb_pool_stat *ret, struct gb_error *err) {
    struct fault *f = gb_fault_of(be);

    return gb_fault_meet(f, GB_FAULT_pool_stat, err) < 0 ? -1 : f->inner->ops->pool_stat(f->inner, pool, ret, err);
}

static int pool_reset_peak(struct gb_backend *be, struct gb_pool *pool, struct gb_error *err) {
    struct fault *f = gb_fault_of(be);

    return gb_fault_meet(f, GB_FAULT_pool_reset_peak, err) < 0 ? -1 : gb_pool_reset_peak(f->inner, pool, err);
}

static int pool_trim(struct gb_backend *be, struct gb_pool *pool, uint64_t keep_bytes, struct gb_error *err) {
    struct fault *f = gb_fault_of(be);

    return gb_fault_meet(f, GB_FAULT_pool_trim, err) < 0 ? -1 : gb_pool_trim(f->inner, pool, keep_bytes, err);
}

static int pool_access_set(struct gb_backend *be, struct gb_pool *pool, int device, enum gb_pool_access access,
                           struct gb_error *err) {
    struct fault *f = gb_fault_of(be);

    return gb_fault_meet(f, GB_FAULT_pool_access_set, err) < 0
               ? -1
               : gb_pool_access_set(f->inner, pool, device, access, err);
}

static int pool_access_get(struct gb_backend *be, struct gb_pool *pool, int device, enum gb_pool_access *ret,
                           struct gb_error *err) {
    struct fault *f = gb_fault_of(be);

    return gb_fault_meet(f, GB_FAULT_pool_access_get, err) < 0 ? -1
                                                               : gb_pool_access_get(f->inner, pool, device, ret, err);
}

static int stream_create(struct gb_backend *be, int device, struct gb_stream **ret, struct gb_error *err) {
    struct fault *f = gb_fault_of(be);

    return gb_fault_meet(f, GB_FAULT_stream_create, err) < 0 ? -1 : gb_stream_create(f->inner, device, ret, err);
}

static void stream_destroy(struct gb_backend *be, struct gb_stream *stream) {
    struct fault *f = gb_fault_of(be);

    (void)gb_fault_meet(f, GB_FAULT_stream_destroy, NULL);
    gb_stream_destroy(f->inner, stream);
}

static int stream_sync(struct gb_backend *be, struct gb_stream *stream, struct gb_error *err) {
    struct fault *f = gb_fault_of(be);

    return gb_fault_meet(f, GB_FAULT_stream_sync, err) < 0 ? -1 : gb_stream_sync(f->inner, stream, err);
}

static int stream_query(struct gb_backend *be, struct gb_stream *stream, bool *ret_done, struct gb_error *err) {
    struct fault *f = gb_fault_of(be);

    return gb_fault_meet(f, GB_FAULT_stream_query, err) < 0 ? -1 : gb_stream_query(f->inner, stream, ret_done, err);
}

static int stream_wait(struct gb_backend *be, struct gb_stream *stream, struct gb_event *event, struct gb_error *err) {
    struct fault *f = gb_fault_of(be);

    return gb_fault_meet(f, GB_FAULT_stream_wait, err) < 0 ? -1 : gb_stream_wait(f->inner, stream, event, err);
}

static int stream_call(struct gb_backend *be, struct gb_stream *stream, void (*fn)(void *), void *arg,
                       struct gb_error *err) {
    struct fault *f = gb_fault_of(be);

    return gb_fault_meet(f, GB_FAULT_stream_call, err) < 0 ? -1 : gb_stream_call(f->inner, stream, fn, arg, err);
}

static int event_create(struct gb_backend *be, int device, struct gb_event **ret, struct gb_error *err) {
    struct fault *f = gb_fault_of(be);

    return gb_fault_meet(f, GB_FAULT_event_create, err) < 0 ? -1 : gb_event_create(f->inner, device, ret, err);
}

static void event_destroy(struct gb_backend *be, struct gb_event *event) {
    struct fault *f = gb_fault_of(be);

    (void)gb_fault_meet(f, GB_FAULT_event_destroy, NULL);
    gb_event_destroy(f->inner, event);
}

static int event_record(struct gb_backend *be, struct gb_event *event, struct gb_stream *stream, struct gb_error *err) {
    struct fault *f = gb_fault_of(be);

    return gb_fault_meet(f, GB_FAULT_event_record, err) < 0 ? -1 : gb_event_record(f->inner, event, stream, err);
}

static int event_record_device(struct gb_backend *be, struct gb_event *event, int device, struct gb_error *err) {
    struct fault *f = gb_fault_of(be);

    return gb_fault_meet(f, GB_FAULT_event_record_device, err) < 0
               ? -1
               : gb_event_record_device(f->inner, event, device, err);
}

static int event_mark(struct gb_backend *be, struct gb_event *event, struct gb_error *err) {
    struct fault *f = gb_fault_of(be);

    return gb_fault_meet(f, GB_FAULT_event_mark, err) < 0 ? -1 : gb_event_mark(f->inner, event, err);
}

static int event_query(struct gb_backend *be, struct gb_event *event, bool *ret_done, struct gb_error *err) {
    struct fault *f = gb_fault_of(be);

    return gb_fault_meet(f, GB_FAULT_event_query, err) < 0 ? -1 : gb_event_query(f->inner, event, ret_done, err);
}

static int event_elapsed(struct gb_backend *be, struct gb_event *start, struct gb_event *end, uint64_t *ret_ns,
                         struct gb_error *err) {
    struct fault *f = gb_fault_of(be);

    return gb_fault_meet(f, GB_FAULT_event_elapsed, err) < 0 ? -1 : gb_event_elapsed(f->inner, start, end, ret_ns, err);
}

static int mem_alloc(struct gb_backend *be, struct gb_pool *pool, struct gb_stream *stream, uint64_t bytes, void **ret,
                     struct gb_error *err) {
    struct fault *f = gb_fault_of(be);

    return gb_fault_meet(f, GB_FAULT_alloc, err) < 0 ? -1 : gb_mem_alloc(f->inner, pool, stream, bytes, ret, err);
}

static int mem_free(struct gb_backend *be, void *ptr, struct gb_stream *stream, struct gb_error *err) {
    struct fault *f = gb_fault_of(be);

    return gb_fault_meet(f, GB_FAULT_free, err) < 0 ? -1 : gb_mem_free(f->inner, ptr, stream, err);
}

static int mem_copy(struct gb_backend *be, void *dst, const void *src, uint64_t bytes, enum gb_copy_direction direction,
                    struct gb_stream *stream, struct gb_error *err) {
    struct fault *f = gb_fault_of(be);

    return gb_fault_meet_queued(f, GB_FAULT_copy, stream, err) < 0
               ? -1
               : gb_mem_copy(f->inner, dst, src, bytes, direction, stream, err);
}

static int mem_fill(struct gb_backend *be, void *dst, uint64_t pattern, unsigned width, uint64_t count,
                    struct gb_stream *stream, struct gb_error *err) {
    struct fault *f = gb_fault_of(be);

    return gb_fault_meet_queued(f, GB_FAULT_fill, stream, err) < 0
               ? -1
               : gb_mem_fill(f->inner, dst, pattern, width, count, stream, err);
}

static int kind_alloc(struct gb_backend *be, int device, enum gb_kind kind, uint64_t bytes, void **ret,
                      struct gb_error *err) {
    struct fault *f = gb_fault_of(be);

    return gb_fault_meet(f, GB_FAULT_kind_alloc, err) < 0 ? -1
                                                          : gb_mem_kind_alloc(f->inner, device, kind, bytes, ret, err);
}

static int kind_free(struct gb_backend *be, const struct gb_location *place, uint64_t bytes, struct gb_error *err) {
    struct fault *f = gb_fault_of(be);

    return gb_fault_meet(f, GB_FAULT_kind_free, err) < 0 ? -1 : gb_mem_kind_free(f->inner, place, bytes, err);
}

static int mem_move(struct gb_backend *be, const struct gb_location *dst, const struct gb_location *src, uint64_t bytes,
                    struct gb_stream *stream, enum gb_copy_way *ret_way, struct gb_error *err) {
    struct fault *f = gb_fault_of(be);

    return gb_fault_meet_queued(f, GB_FAULT_move, stream, err) < 0
               ? -1
               : gb_mem_move(f->inner, dst, src, bytes, stream, ret_way, err);
}

static int mem_box(struct gb_backend *be, const struct gb_location *place, void *pinned, const struct gb_box *box,
                   enum gb_copy_direction direction, struct gb_stream *stream, struct gb_error *err) {
    struct fault *f = gb_fault_of(be);

    return gb_fault_meet_queued(f, GB_FAULT_box, stream, err) < 0
               ? -1
               : gb_mem_box(f->inner, place, pinned, box, direction, stream, err);
}

static int place_fill(struct gb_backend *be, const struct gb_location *dst, uint64_t pattern, unsigned width,
                      uint64_t count, struct gb_stream *stream, struct gb_error *err) {
    struct fault *f = gb_fault_of(be);

    return gb_fault_meet_queued(f, GB_FAULT_place_fill, stream, err) < 0
               ? -1
               : gb_location_fill(f->inner, dst, pattern, width, count, stream, err);
}

static int prefetch(struct gb_backend *be, const struct gb_location *place, uint64_t bytes, bool to_cpu,
                    struct gb_stream *stream, struct gb_error *err) {
    struct fault *f = gb_fault_of(be);

    return gb_fault_meet(f, GB_FAULT_prefetch, err) < 0 ? -1
                                                        : gb_mem_prefetch(f->inner, place, bytes, to_cpu, stream, err);
}

static int attach(struct gb_backend *be, const struct gb_location *place, bool to_cpu, struct gb_stream *stream,
                  struct gb_error *err) {
    struct fault *f = gb_fault_of(be);

    return gb_fault_meet(f, GB_FAULT_attach, err) < 0 ? -1 : gb_mem_attach(f->inner, place, to_cpu, stream, err);
}

static int attributes(struct gb_backend *be, const struct gb_location *place, struct gb_pool *pool,
                      struct gb_mem_attr *ret, struct gb_error *err) {
    struct fault *f = gb_fault_of(be);

    return gb_fault_meet(f, GB_FAULT_attributes, err) < 0 ? -1 : gb_mem_attributes(f->inner, place, pool, ret, err);
}

static int mem_export(struct gb_backend *be, const struct gb_location *place, uint64_t bytes, struct gb_pool *pool,
                      enum gb_export_way way, bool writable, struct gb_export *ret, struct gb_error *err) {
    struct fault *f = gb_fault_of(be);

    return gb_fault_meet(f, GB_FAULT_export, err) < 0
               ? -1
               : gb_mem_export(f->inner, place, bytes, pool, way, writable, ret, err);
}

static int event_create_shared(struct gb_backend *be, int device, struct gb_event **ret, struct gb_error *err) {
    struct fault *f = gb_fault_of(be);

    return gb_fault_meet(f, GB_FAULT_event_create_shared, err) < 0 ? -1
                                                                   : gb_event_create_shared(f->inner, device, ret, err);
}

static int event_export(struct gb_backend *be, struct gb_event *event, unsigned char ret[GB_EXPORT_HANDLE_BYTES],
                        struct gb_error *err) {
    struct fault *f = gb_fault_of(be);

    return gb_fault_meet(f, GB_FAULT_event_export, err) < 0 ? -1 : gb_event_export(f->inner, event, ret, err);
}

static int mem_import(struct gb_backend *be, const struct gb_import *what, struct gb_location *ret,
                      struct gb_error *err) {
    struct fault *f = gb_fault_of(be);

    return gb_fault_meet(f, GB_FAULT_import, err) < 0 ? -1 : gb_mem_import(f->inner, what, ret, err);
}

static int mem_import_end(struct gb_backend *be, const struct gb_location *place, struct gb_error *err) {
    struct fault *f = gb_fault_of(be);

    return gb_fault_meet(f, GB_FAULT_import_end, err) < 0 ? -1 : gb_mem_import_end(f->inner, place, err);
}

static const struct gb_backend_ops fault_ops = {
    .name = "fault",
    .close = gb_fault_close,
    .device_count = device_count,
    .device_get = device_get,
    .peer_get = peer_get,
    .dead = gb_fault_dead,
    .pin_alloc = pin_alloc,
    .pin_free = pin_free,
    .pool_default = pool_default,
    .pool_create = pool_create,
    .pool_destroy = pool_destroy,
    .pool_config = pool_config,
    .pool_configure = pool_configure,
    .pool_stat = pool_stat,
    .pool_reset_peak = pool_reset_peak,
    .pool_trim = pool_trim,
    .pool_access_set = pool_access_set,
    .pool_access_get = pool_access_get,
    .stream_create = stream_create,
    .stream_destroy = stream_destroy,
    .stream_sync = stream_sync,
    .stream_query = stream_query,
    .stream_wait = stream_wait,
    .stream_call = stream_call,
    .event_create = event_create,
    .event_destroy = event_destroy,
    .event_record = event_record,
    .event_record_device = event_record_device,
    .event_mark = event_mark,
    .event_query = event_query,
    .event_elapsed = event_elapsed,
    .watch = gb_fault_watch,
    .alloc = mem_alloc,
    .free = mem_free,
    .copy = mem_copy,
    .fill = mem_fill,
    .kind_alloc = kind_alloc,
    .kind_free = kind_free,
    .move = mem_move,
    .box = mem_box,
    .place_fill = place_fill,
    .prefetch = prefetch,
    .attach = attach,
    .attributes = attributes,
    .export = mem_export,
    .event_create_shared = event_create_shared,
    .event_export = event_export,
    .import = mem_import,
    .import_end = mem_import_end,
};

const struct gb_backend_ops *gb_fault_ops(void) {
    return &fault_ops;
}
