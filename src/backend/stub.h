#ifndef GB_BACKEND_STUB_H
#define GB_BACKEND_STUB_H

#include "backend/backend.h"

int gb_stub_peer_get(struct gb_backend *be, int device, int peer, struct gb_peer_rec *ret, struct gb_error *err);
int gb_stub_pool_access_set(struct gb_backend *be, struct gb_pool *pool, int device, enum gb_pool_access access,
                            struct gb_error *err);
int gb_stub_pool_access_get(struct gb_backend *be, struct gb_pool *pool, int device, enum gb_pool_access *ret,
                            struct gb_error *err);
int gb_stub_event_record_device(struct gb_backend *be, struct gb_event *event, int device, struct gb_error *err);
int gb_stub_kind_alloc(struct gb_backend *be, int device, enum gb_kind kind, uint64_t bytes, void **ret,
                       struct gb_error *err);
int gb_stub_kind_free(struct gb_backend *be, const struct gb_place *place, uint64_t bytes, struct gb_error *err);
int gb_stub_move(struct gb_backend *be, const struct gb_place *dst, const struct gb_place *src, uint64_t bytes,
                 struct gb_stream *stream, enum gb_copy_way *ret_way, struct gb_error *err);
int gb_stub_place_fill(struct gb_backend *be, const struct gb_place *dst, uint64_t pattern, unsigned width,
                       uint64_t count, struct gb_stream *stream, struct gb_error *err);
int gb_stub_prefetch(struct gb_backend *be, const struct gb_place *place, uint64_t bytes, bool to_cpu,
                     struct gb_stream *stream, struct gb_error *err);
int gb_stub_attach(struct gb_backend *be, const struct gb_place *place, bool to_cpu, struct gb_stream *stream,
                   struct gb_error *err);
int gb_stub_attributes(struct gb_backend *be, const struct gb_place *place, struct gb_pool *pool,
                       struct gb_mem_attr *ret, struct gb_error *err);

#endif
