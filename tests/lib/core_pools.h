/* Blocking helpers for pools, streams and events in the core's tests. */
#ifndef CORE_POOLS_H
#define CORE_POOLS_H

#include "core_fixture.h"

/* ret may be NULL. max_bytes 0: the device. */
struct gb_pool_params core_pool_params(const char *session, const char *name, int device, uint64_t max_bytes);
int core_pool_make(struct gb_core *core, const struct gb_pool_params *params, struct gb_pool_view *ret,
                   struct gb_error *err);
int core_pool_patch(struct gb_core *core, const struct gb_pool_params *params, struct gb_pool_view *ret,
                    struct gb_error *err);
int core_pool_remove(struct gb_core *core, const char *session, const char *name, bool force, struct gb_error *err);
int core_pool_trim(struct gb_core *core, const char *session, const char *name, uint64_t keep, struct gb_pool_trim *ret,
                   struct gb_error *err);
int core_pool_reset(struct gb_core *core, const char *session, const char *name, struct gb_error *err);
int core_pool_peer(struct gb_core *core, const char *session, const char *name, int device, enum gb_pool_access access,
                   struct gb_error *err);
int core_pool_get(struct gb_core *core, const char *session, const char *name, struct gb_pool_view *ret,
                  struct gb_error *err);

/* These end the test when they fail. */
void core_pool_plain(struct core_fixture *f, const char *session, const char *name, uint64_t max_bytes);
struct gb_pool_view core_pool_look(struct core_fixture *f, const char *session, const char *name);
void core_pool_assert_current(struct core_fixture *f, const char *pool); /* of the session "default" */
const char *core_pool_names(struct core_fixture *f, const char *session,
                            char out[512]); /* a blank after each; only device 0's default */

int core_stream_make(struct gb_core *core, const char *session, const char *name, struct gb_error *err);
int core_stream_remove(struct gb_core *core, const char *session, const char *name, struct gb_error *err);
int core_stream_get(struct gb_core *core, const char *session, const char *name, struct gb_stream_view *ret,
                    struct gb_error *err);
int core_stream_sync(struct gb_core *core, const char *session, const char *name, struct gb_error *err);
int core_session_sync(struct gb_core *core, const char *session, struct gb_error *err);
int core_device_sync(struct gb_core *core, int device, struct gb_error *err);

int core_event_make(struct gb_core *core, const char *session, const char *name, struct gb_error *err);
int core_event_remove(struct gb_core *core, const char *session, const char *name, struct gb_error *err);
int core_event_get(struct gb_core *core, const char *session, const char *name, struct gb_event_view *ret,
                   struct gb_error *err);
int core_event_record(struct gb_core *core, const char *session, const char *name, const char *stream,
                      struct gb_error *err);
int core_event_sync(struct gb_core *core, const char *session, const char *name, struct gb_event_view *ret,
                    struct gb_error *err);
int core_event_wait(struct gb_core *core, const char *session, const char *name, const char *stream,
                    struct gb_error *err);

/* An upload on a stream and from a pool ("": the defaults), and a download on a stream. */
int core_upload_on(struct gb_core *core, const char *session, const char *name, const char *stream, const char *pool,
                   const void *data, uint64_t bytes, struct gb_error *err);
int core_download_on(struct gb_core *core, const char *session, const char *name, const char *stream, void *out,
                     uint64_t bytes, struct gb_error *err);

/* As core_gate_close, for any stream on any device; the stream is created there if necessary. */
void core_gate_close_on(struct core_gate *gate, struct core_fixture *f, const char *session, const char *stream,
                        int device);

#endif
