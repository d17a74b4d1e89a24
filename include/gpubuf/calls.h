/* Every route but the bytes (data.h) and mappings (map.h). Part of <gpubuf/gpubuf.h>.
 *
 * All return 0, or -1 with err; those that say so GPUBUF_UNCHANGED. how may be NULL, ret may be NULL. */
#ifndef GPUBUF_CALLS_H
#define GPUBUF_CALLS_H

#include <gpubuf/client.h>
#include <gpubuf/records.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Which part of a list. NULL in place of one: all of it, page after page. */
struct gpubuf_page {
    const char *cursor; /* next_cursor of the page before; NULL: from the beginning */
    uint32_t limit;     /* items, at most 1000; 0: the daemon's default. Of large ones a page has fewer */
};

/* A list: items[0..count), the JSON array of them as the daemon wrote it, and where the next page begins ("": nowhere).
 * gpubuf_<noun>_list_done() frees what is in it; it takes NULL and a list of zeros. */
#define GPUBUF_LIST(noun)                                                                                              \
    struct gpubuf_##noun##_list {                                                                                      \
        struct gpubuf_##noun *items;                                                                                   \
        size_t count;                                                                                                  \
        char *json;                                                                                                    \
        char next_cursor[32];                                                                                          \
    };                                                                                                                 \
    void gpubuf_##noun##_list_done(struct gpubuf_##noun##_list *list)

GPUBUF_LIST(device);
GPUBUF_LIST(session);
GPUBUF_LIST(pool);
GPUBUF_LIST(stream);
GPUBUF_LIST(event);
GPUBUF_LIST(buffer);
GPUBUF_LIST(upload);
GPUBUF_LIST(operation);
GPUBUF_LIST(lease);

/* --- the daemon ---------------------------------------------------------------------------------------------------- */

int gpubuf_daemon_get(gpubuf_client *client, struct gpubuf_daemon *ret, struct gpubuf_error *err);

/* /livez; fails when it does not answer. */
int gpubuf_live(gpubuf_client *client, struct gpubuf_error *err);

/* /readyz?verbose; *ret_ready is false where it says not ready (503), which is no error. The checks: in the answer. */
int gpubuf_ready(gpubuf_client *client, bool *ret_ready, struct gpubuf_error *err);

/* The interface's description, as the answer's body. */
int gpubuf_openapi(gpubuf_client *client, struct gpubuf_error *err);

/* With how.if_none_match (the etag of an earlier answer): GPUBUF_UNCHANGED, which costs the daemon next to nothing. */
int gpubuf_stats_get(gpubuf_client *client, const struct gpubuf_how *how, struct gpubuf_stats *ret,
                     struct gpubuf_error *err);

int gpubuf_device_list(gpubuf_client *client, struct gpubuf_device_list *ret, struct gpubuf_error *err);
/* device: an index such as "0", or a UUID. */
int gpubuf_device_get(gpubuf_client *client, const char *device, struct gpubuf_device *ret, struct gpubuf_error *err);
int gpubuf_device_sync(gpubuf_client *client, const char *device, const struct gpubuf_how *how,
                       struct gpubuf_error *err);

/* --- operations ---------------------------------------------------------------------------------------------------- */

/* session, state: only those; NULL: any. Results and problems are not in the JSON of lists. */
int gpubuf_operation_list(gpubuf_client *client, const char *session, const char *state, const struct gpubuf_page *page,
                          struct gpubuf_operation_list *ret, struct gpubuf_error *err);
/* how.wait_s bounds how long the daemon waits for its end. */
int gpubuf_operation_get(gpubuf_client *client, const char *id, const struct gpubuf_how *how,
                         struct gpubuf_operation *ret, struct gpubuf_error *err);
/* Until it has ended, or with GPUBUF_CLIENT_TIMEOUT after timeout_s (0: without an end). A failed operation is an error:
 * its own. */
int gpubuf_operation_wait(gpubuf_client *client, const char *id, uint32_t timeout_s, struct gpubuf_operation *ret,
                          struct gpubuf_error *err);
int gpubuf_operation_cancel(gpubuf_client *client, const char *id, const struct gpubuf_how *how,
                            struct gpubuf_operation *ret, struct gpubuf_error *err);

/* --- sessions ------------------------------------------------------------------------------------------------------ */

struct gpubuf_session_params {
    const char *labels; /* a JSON object of strings; in an update null removes one */
    struct gpubuf_opt quota_bytes;
    struct gpubuf_opt quota_buffers;
    struct gpubuf_opt quota_pinned_bytes;
    struct gpubuf_opt idle_ttl_s; /* 0: never */
    uint64_t room[8];
};

int gpubuf_session_list(gpubuf_client *client, const struct gpubuf_page *page, struct gpubuf_session_list *ret,
                        struct gpubuf_error *err);
int gpubuf_session_create(gpubuf_client *client, const char *session, const struct gpubuf_session_params *params,
                          const struct gpubuf_how *how, struct gpubuf_session *ret, struct gpubuf_error *err);
int gpubuf_session_get(gpubuf_client *client, const char *session, const struct gpubuf_how *how,
                       struct gpubuf_session *ret, struct gpubuf_error *err);
int gpubuf_session_update(gpubuf_client *client, const char *session, const struct gpubuf_session_params *params,
                          const struct gpubuf_how *how, struct gpubuf_session *ret, struct gpubuf_error *err);
int gpubuf_session_delete(gpubuf_client *client, const char *session, const struct gpubuf_how *how,
                          struct gpubuf_error *err);
/* ret_expires_at: GPUBUF_TIME_SIZE bytes; "" when it never does. */
int gpubuf_session_heartbeat(gpubuf_client *client, const char *session, const struct gpubuf_how *how,
                             char *ret_expires_at, struct gpubuf_error *err);
int gpubuf_session_stats(gpubuf_client *client, const char *session, struct gpubuf_stats *ret,
                         struct gpubuf_error *err);
int gpubuf_session_sync(gpubuf_client *client, const char *session, const struct gpubuf_how *how,
                        struct gpubuf_error *err);

/* Several operations in one request. operations: the JSON array of them, as in /openapi.json; stream: of those that name
 * none, may be NULL; atomic: all or none. Single failures are in the answer, and no error of the call. */
int gpubuf_batch_run(gpubuf_client *client, const char *session, const char *operations, const char *stream,
                     bool atomic, const struct gpubuf_how *how, struct gpubuf_batch *ret, struct gpubuf_error *err);

/* --- pools --------------------------------------------------------------------------------------------------------- */

struct gpubuf_pool_params {
    const char *device;          /* index or UUID; at creation only, as max_bytes and exportable are */
    struct gpubuf_opt max_bytes; /* GPUBUF_NO_LIMIT: none */
    struct gpubuf_opt release_threshold_bytes;
    struct gpubuf_opt follow_event_dependencies; /* 0 or 1, as the following */
    struct gpubuf_opt allow_opportunistic;
    struct gpubuf_opt allow_internal_dependencies;
    struct gpubuf_opt exportable;
    uint64_t room[8];
};

int gpubuf_pool_list(gpubuf_client *client, const char *session, const struct gpubuf_page *page,
                     struct gpubuf_pool_list *ret, struct gpubuf_error *err);
int gpubuf_pool_create(gpubuf_client *client, const char *session, const char *pool,
                       const struct gpubuf_pool_params *params, const struct gpubuf_how *how, struct gpubuf_pool *ret,
                       struct gpubuf_error *err);
int gpubuf_pool_get(gpubuf_client *client, const char *session, const char *pool, struct gpubuf_pool *ret,
                    struct gpubuf_error *err);
int gpubuf_pool_update(gpubuf_client *client, const char *session, const char *pool,
                       const struct gpubuf_pool_params *params, const struct gpubuf_how *how, struct gpubuf_pool *ret,
                       struct gpubuf_error *err);
/* force: also while buffers live in it. */
int gpubuf_pool_delete(gpubuf_client *client, const char *session, const char *pool, bool force,
                       const struct gpubuf_how *how, struct gpubuf_error *err);
int gpubuf_pool_trim(gpubuf_client *client, const char *session, const char *pool, uint64_t keep_bytes,
                     const struct gpubuf_how *how, struct gpubuf_pool *ret, struct gpubuf_error *err);
int gpubuf_pool_reset_peak(gpubuf_client *client, const char *session, const char *pool, const struct gpubuf_how *how,
                           struct gpubuf_pool *ret, struct gpubuf_error *err);
/* access: "none" or "read_write", of that device. */
int gpubuf_pool_access(gpubuf_client *client, const char *session, const char *pool, const char *device,
                       const char *access, const struct gpubuf_how *how, struct gpubuf_pool *ret,
                       struct gpubuf_error *err);

/* --- streams and events -------------------------------------------------------------------------------------------- */

int gpubuf_stream_list(gpubuf_client *client, const char *session, const struct gpubuf_page *page,
                       struct gpubuf_stream_list *ret, struct gpubuf_error *err);
int gpubuf_stream_create(gpubuf_client *client, const char *session, const char *stream, const struct gpubuf_how *how,
                         struct gpubuf_stream *ret, struct gpubuf_error *err);
int gpubuf_stream_get(gpubuf_client *client, const char *session, const char *stream, struct gpubuf_stream *ret,
                      struct gpubuf_error *err);
int gpubuf_stream_delete(gpubuf_client *client, const char *session, const char *stream, const struct gpubuf_how *how,
                         struct gpubuf_error *err);
int gpubuf_stream_sync(gpubuf_client *client, const char *session, const char *stream, const struct gpubuf_how *how,
                       struct gpubuf_stream *ret, struct gpubuf_error *err);

int gpubuf_event_list(gpubuf_client *client, const char *session, const struct gpubuf_page *page,
                      struct gpubuf_event_list *ret, struct gpubuf_error *err);
int gpubuf_event_create(gpubuf_client *client, const char *session, const char *event, const struct gpubuf_how *how,
                        struct gpubuf_event *ret, struct gpubuf_error *err);
int gpubuf_event_get(gpubuf_client *client, const char *session, const char *event, struct gpubuf_event *ret,
                     struct gpubuf_error *err);
int gpubuf_event_delete(gpubuf_client *client, const char *session, const char *event, const struct gpubuf_how *how,
                        struct gpubuf_error *err);
/* stream: NULL is "default". */
int gpubuf_event_record(gpubuf_client *client, const char *session, const char *event, const char *stream,
                        const struct gpubuf_how *how, struct gpubuf_event *ret, struct gpubuf_error *err);
int gpubuf_event_wait(gpubuf_client *client, const char *session, const char *event, const char *stream,
                      const struct gpubuf_how *how, struct gpubuf_event *ret, struct gpubuf_error *err);

/* --- buffers ------------------------------------------------------------------------------------------------------- */

struct gpubuf_buffer_params {
    struct gpubuf_opt bytes; /* this, or dtype and shape */
    const char *dtype;
    const char *shape; /* "2,3"; "" is a scalar; NULL: not given */
    const char *kind;
    const char *pool;
    const char *stream;
    const char *device;
    const char *labels; /* a JSON object of strings */
    bool mirrored;
    uint64_t room[8];
};

int gpubuf_buffer_list(gpubuf_client *client, const char *session, const struct gpubuf_page *page,
                       struct gpubuf_buffer_list *ret, struct gpubuf_error *err);
int gpubuf_buffer_create(gpubuf_client *client, const char *session, const char *buffer,
                         const struct gpubuf_buffer_params *params, const struct gpubuf_how *how,
                         struct gpubuf_buffer *ret, struct gpubuf_error *err);
/* attributes: with what the driver knows of the memory, in the answer; takes scope admin. */
int gpubuf_buffer_get(gpubuf_client *client, const char *session, const char *buffer, bool attributes,
                      const struct gpubuf_how *how, struct gpubuf_buffer *ret, struct gpubuf_error *err);
/* labels, dtype and shape of params count. */
int gpubuf_buffer_update(gpubuf_client *client, const char *session, const char *buffer,
                         const struct gpubuf_buffer_params *params, const struct gpubuf_how *how,
                         struct gpubuf_buffer *ret, struct gpubuf_error *err);
/* when_unmapped: also while it is mapped; the bytes are then freed with the last mapping. */
int gpubuf_buffer_delete(gpubuf_client *client, const char *session, const char *buffer, bool when_unmapped,
                         const struct gpubuf_how *how, struct gpubuf_error *err);

struct gpubuf_copy_params {
    const char *from; /* "session/buffer", or "buffer" of the same session */
    uint64_t from_offset;
    struct gpubuf_opt offset; /* where it is written; set: into the buffer as it is */
    struct gpubuf_opt bytes;  /* not set: as many as there are */
    const char *stream;
    const char *side;
    bool in_place;
    uint64_t room[4];
};

struct gpubuf_fill_params {
    uint64_t pattern;
    unsigned width; /* 1, 2, 4, 8 bytes of the pattern; 0: 1 */
    struct gpubuf_opt offset;
    struct gpubuf_opt bytes;
    const char *stream;
    const char *side;
    bool in_place;
    uint64_t room[4];
};

int gpubuf_buffer_copy(gpubuf_client *client, const char *session, const char *buffer,
                       const struct gpubuf_copy_params *params, const struct gpubuf_how *how, struct gpubuf_buffer *ret,
                       struct gpubuf_error *err);
int gpubuf_buffer_fill(gpubuf_client *client, const char *session, const char *buffer,
                       const struct gpubuf_fill_params *params, const struct gpubuf_how *how, struct gpubuf_buffer *ret,
                       struct gpubuf_error *err);

struct gpubuf_verify_params {
    bool sha256; /* compute it */
    bool sha512;
    const char *expect_sha256; /* base64; match tells whether it is that */
    const char *expect_sha512;
    const char *stream;
    uint64_t room[4];
};

/* params may be NULL: the CRC32C alone. Bytes that do not match are no error of the call, nor is it when there was no
 * checksum to compare with: then it is stored from now on. */
int gpubuf_buffer_verify(gpubuf_client *client, const char *session, const char *buffer,
                         const struct gpubuf_verify_params *params, const struct gpubuf_how *how,
                         struct gpubuf_verified *ret, struct gpubuf_error *err);
/* Of a mirrored buffer. to: "host" or "device"; side: "host", "device" or "all". */
int gpubuf_buffer_sync(gpubuf_client *client, const char *session, const char *buffer, const char *to,
                       const char *stream, const struct gpubuf_how *how, struct gpubuf_buffer *ret,
                       struct gpubuf_error *err);
int gpubuf_buffer_release(gpubuf_client *client, const char *session, const char *buffer, const char *side,
                          const struct gpubuf_how *how, struct gpubuf_buffer *ret, struct gpubuf_error *err);
/* Makes its content immutable, for good. */
int gpubuf_buffer_seal(gpubuf_client *client, const char *session, const char *buffer, const struct gpubuf_how *how,
                       struct gpubuf_buffer *ret, struct gpubuf_error *err);

/* --- leases -------------------------------------------------------------------------------------------------------- */

/* Who maps what. */
int gpubuf_lease_list(gpubuf_client *client, const struct gpubuf_page *page, struct gpubuf_lease_list *ret,
                      struct gpubuf_error *err);
int gpubuf_lease_get(gpubuf_client *client, const char *lease, struct gpubuf_lease *ret, struct gpubuf_error *err);
/* Ends another's lease, which takes scope admin, or an export, once its importers have let go; one's own end by
 * gpubuf_unmap(). */
int gpubuf_lease_delete(gpubuf_client *client, const char *lease, struct gpubuf_error *err);

struct gpubuf_export_params {
    bool write;     /* the importers may write */
    uint32_t ttl_s; /* it ends of itself after this; 0: the daemon's default, five minutes */
    uint64_t room[4];
};

/* CUDA's older handle of a buffer of kind ipc, for as long as the time lasts or until gpubuf_lease_delete(): no connection
 * has it. The answer's body (gpubuf_answer_of()) is what NVIDIA Triton registers as CUDA shared memory. params may be NULL.
 * GPUBUF_UNSUPPORTED where the memory has none: map it. */
int gpubuf_export(gpubuf_client *client, const char *session, const char *buffer,
                  const struct gpubuf_export_params *params, const struct gpubuf_how *how, struct gpubuf_exported *ret,
                  struct gpubuf_error *err);

#ifdef __cplusplus
}
#endif

#endif
