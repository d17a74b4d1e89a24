/* The vtable behind backend.h, where the contract of every entry stands. Include that instead. */
#ifndef GB_BACKEND_OPS_H
#define GB_BACKEND_OPS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "model/export.h"
#include "model/model.h"
#include "model/view.h"

struct gb_backend;
struct gb_pool;
struct gb_stream;
struct gb_event;
struct gb_hold;

enum gb_copy_direction { GB_COPY_TO_DEVICE, GB_COPY_FROM_DEVICE, GB_COPY_ON_DEVICE };

/* Called exactly once for each accepted watch, on a thread of the backend; must not block and must not call back into
 * the backend except for watch, event_query and event_elapsed. error is NULL when the event completed, else what the
 * stream's work ended with. */
typedef void gb_watch_fn(void *arg, const struct gb_error *error);

struct gb_backend_ops {
    const char *name; /* "host", "cuda", "fault" */
    void (*close)(struct gb_backend *be);
    int (*device_count)(struct gb_backend *be);
    int (*device_get)(struct gb_backend *be, int device, struct gb_device_rec *ret, struct gb_error *err);
    int (*peer_get)(struct gb_backend *be, int device, int peer, struct gb_peer_rec *ret, struct gb_error *err);
    bool (*dead)(struct gb_backend *be, struct gb_error *ret_why);

    int (*pin_alloc)(struct gb_backend *be, size_t bytes, void **ret, struct gb_error *err);
    void (*pin_free)(struct gb_backend *be, void *ptr);

    int (*pool_default)(struct gb_backend *be, int device, struct gb_pool **ret, struct gb_error *err);
    int (*pool_create)(struct gb_backend *be, int device, const struct gb_pool_config *config, struct gb_pool **ret,
                       struct gb_error *err);
    void (*pool_destroy)(struct gb_backend *be, struct gb_pool *pool);
    int (*pool_config)(struct gb_backend *be, struct gb_pool *pool, struct gb_pool_config *ret, struct gb_error *err);
    int (*pool_configure)(struct gb_backend *be, struct gb_pool *pool, const struct gb_pool_config *config,
                          struct gb_error *err);
    int (*pool_stat)(struct gb_backend *be, struct gb_pool *pool, struct gb_pool_stat *ret, struct gb_error *err);
    int (*pool_reset_peak)(struct gb_backend *be, struct gb_pool *pool, struct gb_error *err);
    int (*pool_trim)(struct gb_backend *be, struct gb_pool *pool, uint64_t keep_bytes, struct gb_error *err);
    int (*pool_access_set)(struct gb_backend *be, struct gb_pool *pool, int device, enum gb_pool_access access,
                           struct gb_error *err);
    int (*pool_access_get)(struct gb_backend *be, struct gb_pool *pool, int device, enum gb_pool_access *ret,
                           struct gb_error *err);

    int (*stream_create)(struct gb_backend *be, int device, struct gb_stream **ret, struct gb_error *err);
    void (*stream_destroy)(struct gb_backend *be, struct gb_stream *stream);
    int (*stream_sync)(struct gb_backend *be, struct gb_stream *stream, struct gb_error *err);
    int (*stream_query)(struct gb_backend *be, struct gb_stream *stream, bool *ret_done, struct gb_error *err);
    int (*stream_wait)(struct gb_backend *be, struct gb_stream *stream, struct gb_event *event, struct gb_error *err);
    int (*stream_call)(struct gb_backend *be, struct gb_stream *stream, void (*fn)(void *), void *arg,
                       struct gb_error *err);
    int (*stream_hold)(struct gb_backend *be, struct gb_stream *stream, struct gb_hold **ret, struct gb_error *err);
    void (*stream_release)(struct gb_backend *be, struct gb_hold *hold);

    int (*event_create)(struct gb_backend *be, int device, struct gb_event **ret, struct gb_error *err);
    void (*event_destroy)(struct gb_backend *be, struct gb_event *event);
    int (*event_record)(struct gb_backend *be, struct gb_event *event, struct gb_stream *stream, struct gb_error *err);
    int (*event_record_device)(struct gb_backend *be, struct gb_event *event, int device, struct gb_error *err);
    int (*event_mark)(struct gb_backend *be, struct gb_event *event, struct gb_error *err);
    int (*event_query)(struct gb_backend *be, struct gb_event *event, bool *ret_done, struct gb_error *err);
    int (*event_sync)(struct gb_backend *be, struct gb_event *event, struct gb_error *err);
    int (*event_elapsed)(struct gb_backend *be, struct gb_event *start, struct gb_event *end, uint64_t *ret_ns,
                         struct gb_error *err);
    int (*watch)(struct gb_backend *be, struct gb_event *event, gb_watch_fn *fn, void *arg, struct gb_error *err);

    int (*alloc)(struct gb_backend *be, struct gb_pool *pool, struct gb_stream *stream, uint64_t bytes, void **ret,
                 struct gb_error *err);
    int (*free)(struct gb_backend *be, void *ptr, struct gb_stream *stream, struct gb_error *err);
    int (*copy)(struct gb_backend *be, void *dst, const void *src, uint64_t bytes, enum gb_copy_direction direction,
                struct gb_stream *stream, struct gb_error *err);
    int (*fill)(struct gb_backend *be, void *dst, uint64_t pattern, unsigned width, uint64_t count,
                struct gb_stream *stream, struct gb_error *err);

    int (*kind_alloc)(struct gb_backend *be, int device, enum gb_kind kind, uint64_t bytes, void **ret,
                      struct gb_error *err);
    int (*kind_free)(struct gb_backend *be, const struct gb_location *place, uint64_t bytes, struct gb_error *err);
    int (*move)(struct gb_backend *be, const struct gb_location *dst, const struct gb_location *src, uint64_t bytes,
                struct gb_stream *stream, enum gb_copy_way *ret_way, struct gb_error *err);
    int (*box)(struct gb_backend *be, const struct gb_location *place, void *pinned, const struct gb_box *box,
               enum gb_copy_direction direction, struct gb_stream *stream, struct gb_error *err);
    int (*place_fill)(struct gb_backend *be, const struct gb_location *dst, uint64_t pattern, unsigned width,
                      uint64_t count, struct gb_stream *stream, struct gb_error *err);
    int (*prefetch)(struct gb_backend *be, const struct gb_location *place, uint64_t bytes, bool to_cpu,
                    struct gb_stream *stream, struct gb_error *err);
    int (*attach)(struct gb_backend *be, const struct gb_location *place, bool to_cpu, struct gb_stream *stream,
                  struct gb_error *err);
    int (*attributes)(struct gb_backend *be, const struct gb_location *place, struct gb_pool *pool,
                      struct gb_mem_attr *ret, struct gb_error *err);

    int (*export)(struct gb_backend *be, const struct gb_location *place, uint64_t bytes, struct gb_pool *pool,
                  enum gb_export_way way, bool writable, struct gb_export *ret, struct gb_error *err);
    int (*event_create_shared)(struct gb_backend *be, int device, struct gb_event **ret, struct gb_error *err);
    int (*event_export)(struct gb_backend *be, struct gb_event *event, unsigned char ret[GB_EXPORT_HANDLE_BYTES],
                        struct gb_error *err);

    /* The group "import": both, or neither. */
    int (*import)(struct gb_backend *be, const struct gb_import *what, struct gb_location *ret, struct gb_error *err);
    int (*import_end)(struct gb_backend *be, const struct gb_location *place, struct gb_error *err);
};

/* The first member of every implementation. */
struct gb_backend {
    const struct gb_backend_ops *ops;
};

#endif
