/* Stands in until both backends have it: UNSUPPORTED. */
#include "backend/stub.h"

int gb_stub_peer_get(struct gb_backend *be, int device, int peer, struct gb_peer_rec *ret, struct gb_error *err) {
    (void)be;
    (void)device;
    (void)peer;
    (void)ret;
    return gb_error_set(err, GB_ERR_UNSUPPORTED, "peer_get is not there yet");
}

int gb_stub_pool_access_set(struct gb_backend *be, struct gb_pool *pool, int device, enum gb_pool_access access,
                            struct gb_error *err) {
    (void)be;
    (void)pool;
    (void)device;
    (void)access;
    return gb_error_set(err, GB_ERR_UNSUPPORTED, "pool_access_set is not there yet");
}

int gb_stub_pool_access_get(struct gb_backend *be, struct gb_pool *pool, int device, enum gb_pool_access *ret,
                            struct gb_error *err) {
    (void)be;
    (void)pool;
    (void)device;
    (void)ret;
    return gb_error_set(err, GB_ERR_UNSUPPORTED, "pool_access_get is not there yet");
}

int gb_stub_event_record_device(struct gb_backend *be, struct gb_event *event, int device, struct gb_error *err) {
    (void)be;
    (void)event;
    (void)device;
    return gb_error_set(err, GB_ERR_UNSUPPORTED, "event_record_device is not there yet");
}

int gb_stub_kind_alloc(struct gb_backend *be, int device, enum gb_kind kind, uint64_t bytes, void **ret,
                       struct gb_error *err) {
    (void)be;
    (void)device;
    (void)kind;
    (void)bytes;
    (void)ret;
    return gb_error_set(err, GB_ERR_UNSUPPORTED, "kind_alloc is not there yet");
}

int gb_stub_kind_free(struct gb_backend *be, const struct gb_place *place, uint64_t bytes, struct gb_error *err) {
    (void)be;
    (void)place;
    (void)bytes;
    return gb_error_set(err, GB_ERR_UNSUPPORTED, "kind_free is not there yet");
}

int gb_stub_move(struct gb_backend *be, const struct gb_place *dst, const struct gb_place *src, uint64_t bytes,
                 struct gb_stream *stream, enum gb_copy_way *ret_way, struct gb_error *err) {
    (void)be;
    (void)dst;
    (void)src;
    (void)bytes;
    (void)stream;
    (void)ret_way;
    return gb_error_set(err, GB_ERR_UNSUPPORTED, "move is not there yet");
}

int gb_stub_place_fill(struct gb_backend *be, const struct gb_place *dst, uint64_t pattern, unsigned width,
                       uint64_t count, struct gb_stream *stream, struct gb_error *err) {
    (void)be;
    (void)dst;
    (void)pattern;
    (void)width;
    (void)count;
    (void)stream;
    return gb_error_set(err, GB_ERR_UNSUPPORTED, "place_fill is not there yet");
}

int gb_stub_prefetch(struct gb_backend *be, const struct gb_place *place, uint64_t bytes, bool to_cpu,
                     struct gb_stream *stream, struct gb_error *err) {
    (void)be;
    (void)place;
    (void)bytes;
    (void)to_cpu;
    (void)stream;
    return gb_error_set(err, GB_ERR_UNSUPPORTED, "prefetch is not there yet");
}

int gb_stub_attach(struct gb_backend *be, const struct gb_place *place, bool to_cpu, struct gb_stream *stream,
                   struct gb_error *err) {
    (void)be;
    (void)place;
    (void)to_cpu;
    (void)stream;
    return gb_error_set(err, GB_ERR_UNSUPPORTED, "attach is not there yet");
}

int gb_stub_attributes(struct gb_backend *be, const struct gb_place *place, struct gb_pool *pool,
                       struct gb_mem_attr *ret, struct gb_error *err) {
    (void)be;
    (void)place;
    (void)pool;
    (void)ret;
    return gb_error_set(err, GB_ERR_UNSUPPORTED, "attributes is not there yet");
}
