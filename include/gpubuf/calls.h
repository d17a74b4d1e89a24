/* Every route but the bytes (data.h) and mappings (map.h). Part of <gpubuf/gpubuf.h>, which explains the parameters and
 * errors that all functions share. */
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
GPUBUF_LIST(checkpoint);

/* --- the daemon --------------------------------------------------------------------------------------------------- */

/* Reads the version, backend and start time of the daemon into *ret. Returns 0 or -1. Errors: those of every
 * request. */
int gpubuf_daemon_get(gpubuf_client *client, struct gpubuf_daemon *ret, struct gpubuf_error *err);

/* Asks /livez whether the daemon answers at all. Returns 0 or -1. Errors: those of every request. */
int gpubuf_live(gpubuf_client *client, struct gpubuf_error *err);

/* Asks /readyz?verbose whether the daemon takes work. *ret_ready is false on a 503, which is no error; the single
 * checks are in the answer. Returns 0 or -1. Errors: those of every request. */
int gpubuf_ready(gpubuf_client *client, bool *ret_ready, struct gpubuf_error *err);

/* Fetches the OpenAPI description of the interface as the body of the answer. Returns 0 or -1. Errors: those of
 * every request. */
int gpubuf_openapi(gpubuf_client *client, struct gpubuf_error *err);

/* Reads the counters of the daemon. With how.if_none_match (the etag of an earlier answer) an unchanged reply costs
 * the daemon next to nothing. Returns 0, -1, or GPUBUF_UNCHANGED if the entity tag still matches. Errors: those of
 * every request. */
int gpubuf_stats_get(gpubuf_client *client, const struct gpubuf_how *how, struct gpubuf_stats *ret,
                     struct gpubuf_error *err);

/* Lists all devices. The caller frees *ret with gpubuf_device_list_done(). Returns 0 or -1. Errors: those of every
 * request. */
int gpubuf_device_list(gpubuf_client *client, struct gpubuf_device_list *ret, struct gpubuf_error *err);

/* Reads one device. device: an index such as "0", or a UUID. Returns 0 or -1. Errors: DEVICE_NOT_FOUND. */
int gpubuf_device_get(gpubuf_client *client, const char *device, struct gpubuf_device *ret, struct gpubuf_error *err);

/* Waits until all work that the daemon queued on the device has ended. device: an index or a UUID. Returns 0 or -1.
 * Errors: DEVICE_NOT_FOUND, TIMED_OUT, DEVICE_LOST. */
int gpubuf_device_sync(gpubuf_client *client, const char *device, const struct gpubuf_how *how,
                       struct gpubuf_error *err);

/* --- operations --------------------------------------------------------------------------------------------------- */

/* Lists operations. session, state: only operations with that value; NULL: any. Results and problems are left out of
 * the JSON of a list. The caller frees *ret with gpubuf_operation_list_done(). Returns 0 or -1. Errors:
 * INVALID_ARGUMENT. */
int gpubuf_operation_list(gpubuf_client *client, const char *session, const char *state, const struct gpubuf_page *page,
                          struct gpubuf_operation_list *ret, struct gpubuf_error *err);

/* Reads one operation. id: as in how.ret_operation. how.wait_s bounds how long the daemon waits for the end of the
 * operation. Returns 0 or -1. Errors: OPERATION_NOT_FOUND. */
int gpubuf_operation_get(gpubuf_client *client, const char *id, const struct gpubuf_how *how,
                         struct gpubuf_operation *ret, struct gpubuf_error *err);

/* Waits until the operation with that id has ended. timeout_s: seconds to wait; 0: without a limit. Returns 0 or -1.
 * Errors: OPERATION_NOT_FOUND, CLIENT_TIMEOUT; if the operation failed, its own error. */
int gpubuf_operation_wait(gpubuf_client *client, const char *id, uint32_t timeout_s, struct gpubuf_operation *ret,
                          struct gpubuf_error *err);

/* Cancels the operation with that id if it can still be undone. Returns 0 or -1. Errors: OPERATION_NOT_FOUND,
 * OPERATION_RUNNING, OPERATION_ENDED. */
int gpubuf_operation_cancel(gpubuf_client *client, const char *id, const struct gpubuf_how *how,
                            struct gpubuf_operation *ret, struct gpubuf_error *err);

/* --- sessions ----------------------------------------------------------------------------------------------------- */

struct gpubuf_session_params {
    const char *labels; /* a JSON object of strings; in an update null removes one */
    struct gpubuf_opt quota_bytes;
    struct gpubuf_opt quota_buffers;
    struct gpubuf_opt quota_pinned_bytes;
    struct gpubuf_opt idle_ttl_s; /* 0: never */
    const char
        *pool; /* in an update: the current pool from now on; "default": none but the devices' own; NULL: as it is */
    const char *durability;               /* of new buffers that are made without one: none, behind, sync */
    const char *spill;                    /* the same: never, host, disk */
    struct gpubuf_opt priority;           /* 0 to 1000: buffers of sessions of a lower one leave memory first */
    struct gpubuf_opt quota_stored_bytes; /* on disk */
    /* Of a new session: it is registered in the daemon's fleet, and this is what the daemon does while it is cut off
     * from the directory: serve, stop. NULL: the session is the daemon's own. */
    const char *fleet;
    uint32_t failover_after_s; /* with fleet "stop": a node with copies takes it over from then on; 0: none does */
    uint32_t replicas;         /* nodes that are to have copies, of one that is registered; 0: as it is */
};
#define GPUBUF_NO_REPLICAS UINT32_MAX /* none from now on */

/* Lists sessions. The caller frees *ret with gpubuf_session_list_done(). Returns 0 or -1. Errors: those of every
 * request. */
int gpubuf_session_list(gpubuf_client *client, const struct gpubuf_page *page, struct gpubuf_session_list *ret,
                        struct gpubuf_error *err);

/* Creates a session. params may be NULL. Returns 0 or -1. Errors: SESSION_EXISTS, LIMIT_REACHED, INVALID_NAME,
 * INVALID_ARGUMENT; with params->fleet DIRECTORY_UNAVAILABLE and UNSUPPORTED. */
int gpubuf_session_create(gpubuf_client *client, const char *session, const struct gpubuf_session_params *params,
                          const struct gpubuf_how *how, struct gpubuf_session *ret, struct gpubuf_error *err);

/* Reads a session. With how.if_none_match the reply may be that nothing changed. Returns 0, -1, or GPUBUF_UNCHANGED
 * if the entity tag still matches. Errors: SESSION_NOT_FOUND. */
int gpubuf_session_get(gpubuf_client *client, const char *session, const struct gpubuf_how *how,
                       struct gpubuf_session *ret, struct gpubuf_error *err);

/* Changes the fields of a session that params gives; the others keep their values. Returns 0 or -1. Errors:
 * SESSION_NOT_FOUND, POOL_NOT_FOUND, PRECONDITION_FAILED, INVALID_ARGUMENT. */
int gpubuf_session_update(gpubuf_client *client, const char *session, const struct gpubuf_session_params *params,
                          const struct gpubuf_how *how, struct gpubuf_session *ret, struct gpubuf_error *err);

/* Deletes a session with all that is in it. Returns 0 or -1. Errors: SESSION_NOT_FOUND, SESSION_PROTECTED, MAPPED,
 * PRECONDITION_FAILED. */
int gpubuf_session_delete(gpubuf_client *client, const char *session, const struct gpubuf_how *how,
                          struct gpubuf_error *err);

/* Resets the idle timer of a session. ret_expires_at: GPUBUF_TIME_SIZE bytes; "" if the session never expires.
 * Returns 0 or -1. Errors: SESSION_NOT_FOUND. */
int gpubuf_session_heartbeat(gpubuf_client *client, const char *session, const struct gpubuf_how *how,
                             char *ret_expires_at, struct gpubuf_error *err);

/* Reads the counters of one session. Returns 0 or -1. Errors: SESSION_NOT_FOUND. */
int gpubuf_session_stats(gpubuf_client *client, const char *session, struct gpubuf_stats *ret,
                         struct gpubuf_error *err);

/* Waits until the work on all streams of a session has ended. Returns 0 or -1. Errors: SESSION_NOT_FOUND, TIMED_OUT,
 * DEVICE_LOST. */
int gpubuf_session_sync(gpubuf_client *client, const char *session, const struct gpubuf_how *how,
                        struct gpubuf_error *err);

/* Carries out several operations in one request. operations: their JSON array, as in /openapi.json; stream: the one
 * for operations that name none, may be NULL; atomic: all or none. Failures of single operations are in the answer
 * and are no error of the call. Returns 0 or -1. Errors: SESSION_NOT_FOUND, INVALID_ARGUMENT; if atomic, that of the
 * operation that failed. */
int gpubuf_batch_run(gpubuf_client *client, const char *session, const char *operations, const char *stream,
                     bool atomic, const struct gpubuf_how *how, struct gpubuf_batch *ret, struct gpubuf_error *err);

/* --- pools -------------------------------------------------------------------------------------------------------- */

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

/* Lists the pools of a session. The caller frees *ret with gpubuf_pool_list_done(). Returns 0 or -1. Errors:
 * SESSION_NOT_FOUND. */
int gpubuf_pool_list(gpubuf_client *client, const char *session, const struct gpubuf_page *page,
                     struct gpubuf_pool_list *ret, struct gpubuf_error *err);

/* Creates a pool. params may be NULL. Returns 0 or -1. Errors: POOL_EXISTS, LIMIT_REACHED, DEVICE_NOT_FOUND,
 * UNSUPPORTED. */
int gpubuf_pool_create(gpubuf_client *client, const char *session, const char *pool,
                       const struct gpubuf_pool_params *params, const struct gpubuf_how *how, struct gpubuf_pool *ret,
                       struct gpubuf_error *err);

/* Reads a pool. Returns 0 or -1. Errors: POOL_NOT_FOUND. */
int gpubuf_pool_get(gpubuf_client *client, const char *session, const char *pool, struct gpubuf_pool *ret,
                    struct gpubuf_error *err);

/* Changes the release threshold or the reuse policies that params gives. A device's own pool takes scope admin. Returns
 * 0 or -1. Errors: POOL_NOT_FOUND, FORBIDDEN, PRECONDITION_FAILED, INVALID_ARGUMENT. */
int gpubuf_pool_update(gpubuf_client *client, const char *session, const char *pool,
                       const struct gpubuf_pool_params *params, const struct gpubuf_how *how, struct gpubuf_pool *ret,
                       struct gpubuf_error *err);

/* Deletes a pool. force: also while buffers live in it, which are lost. Returns 0 or -1. Errors: POOL_NOT_FOUND,
 * POOL_BUSY, POOL_PROTECTED, MAPPED. */
int gpubuf_pool_delete(gpubuf_client *client, const char *session, const char *pool, bool force,
                       const struct gpubuf_how *how, struct gpubuf_error *err);

/* Returns unused memory of a pool to the device. keep_bytes: how much the pool may keep reserved. Once a pointer of the
 * pool was exported, nothing goes back to the system until the pool is deleted. Returns 0 or -1. Errors:
 * POOL_NOT_FOUND. */
int gpubuf_pool_trim(gpubuf_client *client, const char *session, const char *pool, uint64_t keep_bytes,
                     const struct gpubuf_how *how, struct gpubuf_pool *ret, struct gpubuf_error *err);

/* Sets the peaks of a pool to its present values. Returns 0 or -1. Errors: POOL_NOT_FOUND. */
int gpubuf_pool_reset_peak(gpubuf_client *client, const char *session, const char *pool, const struct gpubuf_how *how,
                           struct gpubuf_pool *ret, struct gpubuf_error *err);

/* Sets the access of one device to the memory of a pool. device: an index or a UUID; access: "none" or "read_write".
 * Returns 0 or -1. Errors: POOL_NOT_FOUND, DEVICE_NOT_FOUND, UNSUPPORTED. */
int gpubuf_pool_access(gpubuf_client *client, const char *session, const char *pool, const char *device,
                       const char *access, const struct gpubuf_how *how, struct gpubuf_pool *ret,
                       struct gpubuf_error *err);

/* --- streams and events ------------------------------------------------------------------------------------------- */

/* Lists the streams of a session. The caller frees *ret with gpubuf_stream_list_done(). Returns 0 or -1. Errors:
 * SESSION_NOT_FOUND. */
int gpubuf_stream_list(gpubuf_client *client, const char *session, const struct gpubuf_page *page,
                       struct gpubuf_stream_list *ret, struct gpubuf_error *err);

/* Creates a stream. Returns 0 or -1. Errors: STREAM_EXISTS, LIMIT_REACHED, INVALID_NAME. */
int gpubuf_stream_create(gpubuf_client *client, const char *session, const char *stream, const struct gpubuf_how *how,
                         struct gpubuf_stream *ret, struct gpubuf_error *err);

/* Reads a stream. Returns 0 or -1. Errors: STREAM_NOT_FOUND. */
int gpubuf_stream_get(gpubuf_client *client, const char *session, const char *stream, struct gpubuf_stream *ret,
                      struct gpubuf_error *err);

/* Deletes a stream after its queued work has ended. Returns 0 or -1. Errors: STREAM_NOT_FOUND, STREAM_PROTECTED. */
int gpubuf_stream_delete(gpubuf_client *client, const char *session, const char *stream, const struct gpubuf_how *how,
                         struct gpubuf_error *err);

/* Waits until the work on a stream has ended. Returns 0 or -1. Errors: STREAM_NOT_FOUND, TIMED_OUT, DEVICE_LOST. */
int gpubuf_stream_sync(gpubuf_client *client, const char *session, const char *stream, const struct gpubuf_how *how,
                       struct gpubuf_stream *ret, struct gpubuf_error *err);

/* Holds a stream's part on a device (NULL: the first) for ms milliseconds, at most 10000: work queued on it meanwhile
 * waits. It returns when the hold is queued. Needs scope admin. Returns 0 or -1. Errors: STREAM_NOT_FOUND,
 * DEVICE_NOT_FOUND, STREAM_HELD, SATURATED. */
int gpubuf_stream_hold(gpubuf_client *client, const char *session, const char *stream, uint64_t ms, const char *device,
                       const struct gpubuf_how *how, struct gpubuf_error *err);

/* Lists the events of a session. The caller frees *ret with gpubuf_event_list_done(). Returns 0 or -1. Errors:
 * SESSION_NOT_FOUND. */
int gpubuf_event_list(gpubuf_client *client, const char *session, const struct gpubuf_page *page,
                      struct gpubuf_event_list *ret, struct gpubuf_error *err);

/* Creates an event. Returns 0 or -1. Errors: EVENT_EXISTS, LIMIT_REACHED, INVALID_NAME. */
int gpubuf_event_create(gpubuf_client *client, const char *session, const char *event, const struct gpubuf_how *how,
                        struct gpubuf_event *ret, struct gpubuf_error *err);

/* Reads an event. Returns 0 or -1. Errors: EVENT_NOT_FOUND. */
int gpubuf_event_get(gpubuf_client *client, const char *session, const char *event, struct gpubuf_event *ret,
                     struct gpubuf_error *err);

/* Deletes an event. Work that waits for it is not affected. Returns 0 or -1. Errors: EVENT_NOT_FOUND. */
int gpubuf_event_delete(gpubuf_client *client, const char *session, const char *event, const struct gpubuf_how *how,
                        struct gpubuf_error *err);

/* Records an event on a stream: it covers the work that is queued there now. stream: NULL is "default". Returns 0 or
 * -1. Errors: EVENT_NOT_FOUND, STREAM_NOT_FOUND. */
int gpubuf_event_record(gpubuf_client *client, const char *session, const char *event, const char *stream,
                        const struct gpubuf_how *how, struct gpubuf_event *ret, struct gpubuf_error *err);

/* Makes later work on a stream wait for an event, on the device. stream: NULL is "default". Returns 0 or -1. Errors:
 * EVENT_NOT_FOUND, STREAM_NOT_FOUND. */
int gpubuf_event_wait(gpubuf_client *client, const char *session, const char *event, const char *stream,
                      const struct gpubuf_how *how, struct gpubuf_event *ret, struct gpubuf_error *err);

/* --- buffers ------------------------------------------------------------------------------------------------------ */

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
    const char *durability; /* none, behind, sync; NULL: the session's, and in an update as it is */
    /* Where bytes that are not durable go when others want the memory: never, host, disk; NULL: as with durability. */
    const char *spill;
    struct gpubuf_opt resident; /* 1: the bytes leave memory on request alone; 0: others may take their place */
    uint64_t room[4];
};

/* Lists the buffers of a session. The caller frees *ret with gpubuf_buffer_list_done(). Returns 0 or -1. Errors:
 * SESSION_NOT_FOUND. */
int gpubuf_buffer_list(gpubuf_client *client, const char *session, const struct gpubuf_page *page,
                       struct gpubuf_buffer_list *ret, struct gpubuf_error *err);

/* Creates a buffer of zeros. params says its size, or its dtype and shape, and where it is to be. how.wait_s bounds
 * how long the daemon waits for memory. Returns 0 or -1. Errors: BUFFER_EXISTS, QUOTA_EXCEEDED, OUT_OF_MEMORY,
 * LIMIT_REACHED, UNSUPPORTED, POOL_NOT_FOUND. */
int gpubuf_buffer_create(gpubuf_client *client, const char *session, const char *buffer,
                         const struct gpubuf_buffer_params *params, const struct gpubuf_how *how,
                         struct gpubuf_buffer *ret, struct gpubuf_error *err);

/* Reads the record of a buffer. attributes: with what the driver knows of the memory, in the answer, which takes
 * scope admin. Returns 0, -1, or GPUBUF_UNCHANGED if the entity tag still matches. Errors: BUFFER_NOT_FOUND,
 * CONTENT_LOST with attributes. */
int gpubuf_buffer_get(gpubuf_client *client, const char *session, const char *buffer, bool attributes,
                      const struct gpubuf_how *how, struct gpubuf_buffer *ret, struct gpubuf_error *err);

/* Reads the times of the last large transfer of a buffer; the header of a large download leaves before its copies have
 * ended. Returns 0 or -1. Errors: BUFFER_NOT_FOUND. */
int gpubuf_buffer_last_transfer(gpubuf_client *client, const char *session, const char *buffer,
                                struct gpubuf_last_transfer *ret, struct gpubuf_error *err);

/* Changes labels, dtype, shape, durability, spill and resident of a buffer; the other fields of params are ignored. A
 * buffer that gets durability "sync" has its bytes on disk when the call returns. Returns 0 or -1. Errors:
 * BUFFER_NOT_FOUND, SHAPE_MISMATCH, PRECONDITION_FAILED; with a durability those of gpubuf_buffer_store() and
 * gpubuf_buffer_load(). */
int gpubuf_buffer_update(gpubuf_client *client, const char *session, const char *buffer,
                         const struct gpubuf_buffer_params *params, const struct gpubuf_how *how,
                         struct gpubuf_buffer *ret, struct gpubuf_error *err);

/* Deletes a buffer. Readers of its bytes finish undisturbed. when_unmapped: also while it is mapped; the memory is
 * then freed with the last mapping. Returns 0 or -1. Errors: BUFFER_NOT_FOUND, MAPPED, BUFFER_BUSY,
 * PRECONDITION_FAILED. */
int gpubuf_buffer_delete(gpubuf_client *client, const char *session, const char *buffer, bool when_unmapped,
                         const struct gpubuf_how *how, struct gpubuf_error *err);

struct gpubuf_copy_params {
    /* "session/buffer", or "buffer" of the same session; or the URL of a buffer of another daemon
     * (http[s]://HOST[:PORT]/v1/sessions/SESSION/buffers/BUFFER), which this one may copy from: all of it then, and
     * offset, bytes, side and in_place are not set. */
    const char *from;
    uint64_t from_offset;
    struct gpubuf_opt offset; /* where it is written; set: into the buffer as it is */
    struct gpubuf_opt bytes;  /* not set: as many as there are */
    const char *stream;
    const char *side;
    bool in_place;
    unsigned source_connections; /* this and the next one: of a URL. 0: the daemon's default */
    const char *source_token;    /* of that daemon; NULL: none */
    const char *source_if_match; /* the entity tag of the bytes that the source must have; NULL: any */
    uint64_t room[2];
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

/* Copies bytes of another buffer on the device. Without params.offset the buffer is made or replaced. Returns 0 or
 * -1. Errors: BUFFER_NOT_FOUND, CONTENT_LOST, SEALED, MAPPED, BUFFER_BUSY, QUOTA_EXCEEDED, OUT_OF_MEMORY; with a URL
 * SOURCE_NOT_PERMITTED, SOURCE_UNREACHABLE, SOURCE_REFUSED, SOURCE_CHANGED. */
int gpubuf_buffer_copy(gpubuf_client *client, const char *session, const char *buffer,
                       const struct gpubuf_copy_params *params, const struct gpubuf_how *how, struct gpubuf_buffer *ret,
                       struct gpubuf_error *err);

/* Fills bytes of a buffer with a repeated pattern on the device. Returns 0 or -1. Errors: BUFFER_NOT_FOUND,
 * CONTENT_LOST, SEALED, MAPPED, BUFFER_BUSY, INVALID_ARGUMENT. */
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

/* Reads a buffer and compares its checksum with the stored one. params may be NULL: the CRC32C alone. A mismatch is
 * no error of the call; if no checksum was stored, the computed one is stored. Returns 0 or -1. Errors:
 * BUFFER_NOT_FOUND, CONTENT_LOST, BUFFER_PARTIAL. */
int gpubuf_buffer_verify(gpubuf_client *client, const char *session, const char *buffer,
                         const struct gpubuf_verify_params *params, const struct gpubuf_how *how,
                         struct gpubuf_verified *ret, struct gpubuf_error *err);

/* Brings one side of a mirrored buffer up to date. to: "host" or "device"; stream: NULL is "default". ret->copied is
 * false if that side was current. Returns 0 or -1. Errors: BUFFER_NOT_FOUND, INVALID_ARGUMENT if the buffer is not
 * mirrored, CONTENT_LOST, MAPPED. */
int gpubuf_buffer_sync(gpubuf_client *client, const char *session, const char *buffer, const char *to,
                       const char *stream, const struct gpubuf_how *how, struct gpubuf_buffer *ret,
                       struct gpubuf_error *err);

/* Gives one side of a mirrored buffer memory of at least so many bytes, ahead of an upload. side: "host" or "device".
 * Memory that is large enough stays. Returns 0 or -1. Errors: BUFFER_NOT_FOUND, INVALID_ARGUMENT if the buffer is not
 * mirrored, QUOTA_EXCEEDED, OUT_OF_MEMORY, CONTENT_LOST, MAPPED, SEALED, ADOPTED. */
int gpubuf_buffer_reserve(gpubuf_client *client, const char *session, const char *buffer, const char *side,
                          uint64_t bytes, const struct gpubuf_how *how, struct gpubuf_buffer *ret,
                          struct gpubuf_error *err);

/* Frees the memory of one side of a mirrored buffer. side: "host", "device" or "all". Returns 0 or -1. Errors:
 * BUFFER_NOT_FOUND, BUFFER_SIDE_CURRENT, MAPPED, SEALED. */
int gpubuf_buffer_release(gpubuf_client *client, const char *session, const char *buffer, const char *side,
                          const struct gpubuf_how *how, struct gpubuf_buffer *ret, struct gpubuf_error *err);

/* Makes the content of a buffer immutable, for good. Returns 0 or -1. Errors: BUFFER_NOT_FOUND, CONTENT_LOST,
 * MAPPED, ADOPTED, ESCAPED. */
int gpubuf_buffer_seal(gpubuf_client *client, const char *session, const char *buffer, const struct gpubuf_how *how,
                       struct gpubuf_buffer *ret, struct gpubuf_error *err);

/* --- bytes on disk ------------------------------------------------------------------------------------------------ */

/* Writes the bytes of a durable buffer to the disk, if they are not there yet. Returns 0 or -1. Errors:
 * BUFFER_NOT_FOUND, INVALID_ARGUMENT if its durability is "none", CONTENT_LOST, BUFFER_PARTIAL, BUFFER_BUSY, MAPPED,
 * ESCAPED, STORAGE_FULL, STORAGE_FAILED, STORAGE_UNAVAILABLE. */
int gpubuf_buffer_store(gpubuf_client *client, const char *session, const char *buffer, const struct gpubuf_how *how,
                        struct gpubuf_stored *ret, struct gpubuf_error *err);

/* Brings the bytes of a buffer from the disk into memory, if they are not there yet, and waits for that: how.wait_s
 * bounds how long, without it the call waits as long as the load takes. Returns 0 or -1. Errors: BUFFER_NOT_FOUND,
 * CONTENT_LOST, CONTENT_DAMAGED, OUT_OF_MEMORY, QUOTA_EXCEEDED, STORAGE_FAILED, STORAGE_UNAVAILABLE, TIMED_OUT: the
 * load goes on. */
int gpubuf_buffer_load(gpubuf_client *client, const char *session, const char *buffer, const struct gpubuf_how *how,
                       struct gpubuf_buffer *ret, struct gpubuf_error *err);

/* Takes the bytes of a buffer out of memory, to where how.to says. Bytes of a durable buffer that are not on disk yet
 * are stored first. Other bytes end with the daemon's process. Returns 0 or -1. Errors: BUFFER_NOT_FOUND,
 * INVALID_ARGUMENT for at most 64 KiB that are not durable and for bytes that cannot go to host memory, CONTENT_LOST,
 * BUFFER_PARTIAL, BUFFER_BUSY, MAPPED, ESCAPED, ADOPTED, PRECONDITION_FAILED, STORAGE_FULL, STORAGE_FAILED,
 * STORAGE_UNAVAILABLE, UNSUPPORTED. */
int gpubuf_buffer_evict(gpubuf_client *client, const char *session, const char *buffer, const struct gpubuf_how *how,
                        struct gpubuf_buffer *ret, struct gpubuf_error *err);

/* Takes the bytes of all buffers of a session out of memory, as gpubuf_buffer_evict() does. prefix: only buffers whose
 * names begin so; NULL: all. Buffers that are refused are skipped; the first 100 of them are in the answer, with their
 * codes. how.wait_s: how long that may take; without it an hour. Returns 0 or -1. Errors: SESSION_NOT_FOUND,
 * INVALID_NAME. */
int gpubuf_session_evict(gpubuf_client *client, const char *session, const char *prefix, const struct gpubuf_how *how,
                         struct gpubuf_swept *ret, struct gpubuf_error *err);
/* Brings the bytes of all buffers of a session from the disk into memory, as gpubuf_buffer_load() does. prefix, how and
 * the answer: as of gpubuf_session_evict(). Returns 0 or -1. Errors: SESSION_NOT_FOUND, INVALID_NAME. */
int gpubuf_session_load(gpubuf_client *client, const char *session, const char *prefix, const struct gpubuf_how *how,
                        struct gpubuf_swept *ret, struct gpubuf_error *err);

/* Reads the state of the folder of the bytes of durable buffers, which takes scope admin. Returns 0 or -1. Errors:
 * those of every request. */
int gpubuf_storage_get(gpubuf_client *client, struct gpubuf_storage *ret, struct gpubuf_error *err);

/* Reads all files of buffers' bytes and compares their checksums, which takes scope admin. rate: the most bytes a
 * second; 0: the daemon's --scrub-rate. A scrub that runs already is joined, and gets the rate. What is damaged is no
 * error of the call. how.wait_s bounds how long the daemon waits for the end, without it 30 seconds; how.async does not
 * wait. Returns 0 or -1. Errors: INVALID_ARGUMENT, UNSUPPORTED without a folder of bytes, TIMED_OUT: the scrub goes
 * on. */
int gpubuf_storage_scrub(gpubuf_client *client, uint64_t rate, const struct gpubuf_how *how,
                         struct gpubuf_scrubbed *ret, struct gpubuf_error *err);

/* --- checkpoints -------------------------------------------------------------------------------------------------- */

struct gpubuf_checkpoint_params {
    const char *prefix;       /* only buffers whose names begin so; NULL: all. This, or names */
    const char *const *names; /* only these buffers, ended by NULL; NULL: all */
    bool lenient;             /* leave out buffers that cannot be read */
    bool unstable;            /* take buffers that a process may be writing as they are */
    uint64_t room[4];
};

/* Lists checkpoints in the order of their moments. session: only of that one; NULL: of all. The caller frees *ret with
 * gpubuf_checkpoint_list_done(). Returns 0 or -1. Errors: those of every request. */
int gpubuf_checkpoint_list(gpubuf_client *client, const char *session, const struct gpubuf_page *page,
                           struct gpubuf_checkpoint_list *ret, struct gpubuf_error *err);

/* Keeps the buffers of a session as they are at one moment. checkpoint: the name that it gets; params may be NULL: all
 * buffers. Bytes that are on disk are linked, others are read and written. how.wait_s: how long that may take; without
 * it an hour. The first 100 buffers that were left out are in the answer, with their codes. Returns 0 or -1. Errors:
 * CHECKPOINT_EXISTS, LIMIT_REACHED, BUFFER_NOT_FOUND of names, INVALID_ARGUMENT, CONTENT_LOST, CONTENT_DAMAGED,
 * BUFFER_PARTIAL, ESCAPED, ADOPTED, STORAGE_FULL, STORAGE_FAILED, STORAGE_UNAVAILABLE, UNSUPPORTED without a folder of
 * bytes. */
int gpubuf_checkpoint_create(gpubuf_client *client, const char *session, const char *checkpoint,
                             const struct gpubuf_checkpoint_params *params, const struct gpubuf_how *how,
                             struct gpubuf_checkpoint *ret, struct gpubuf_error *err);

/* Reads one checkpoint. With how.if_none_match the reply may be that nothing changed. checkpoint: its name.
 * Returns 0, -1, or GPUBUF_UNCHANGED if the entity tag still matches. Errors: CHECKPOINT_NOT_FOUND. */
int gpubuf_checkpoint_get(gpubuf_client *client, const char *checkpoint, const struct gpubuf_how *how,
                          struct gpubuf_checkpoint *ret, struct gpubuf_error *err);

/* Deletes a checkpoint. checkpoint: its name. Buffers that were restored from it keep their bytes. Returns 0 or -1.
 * Errors: CHECKPOINT_NOT_FOUND, BUFFER_BUSY while a client brings a file of it. */
int gpubuf_checkpoint_delete(gpubuf_client *client, const char *checkpoint, const struct gpubuf_how *how,
                             struct gpubuf_error *err);

/* Reads all files of a checkpoint and compares them with its manifest. checkpoint: its name. how.wait_s: how long that
 * may take; without it an hour. What is damaged is no error of the call; the first 100 buffers of it are in the answer.
 * Returns 0 or -1. Errors: CHECKPOINT_NOT_FOUND, CHECKPOINT_INCOMPLETE, STORAGE_UNAVAILABLE. */
int gpubuf_checkpoint_verify(gpubuf_client *client, const char *checkpoint, const struct gpubuf_how *how,
                             struct gpubuf_checkpoint_verified *ret, struct gpubuf_error *err);

struct gpubuf_restore_params {
    const char *into;         /* a session that is there; NULL: that of the checkpoint */
    const char *prefix;       /* goes before the names of the buffers */
    const char *const *names; /* only these buffers, ended by NULL; NULL: all */
    const char *device;       /* an index or a UUID; NULL: see doc/durable.md */
    bool replace;             /* buffers of those names are replaced; else one that exists refuses all */
    bool eager;               /* the bytes are in memory when the call returns */
    uint64_t room[4];
};

/* Makes the buffers of a checkpoint again, all or none. checkpoint: its name; params may be NULL. The bytes are on disk
 * alone until they are needed, unless params.eager. how.wait_s: how long that may take; without it an hour. The first
 * 100 buffers that could not be loaded are in the answer, with their codes. Returns 0 or -1. Errors:
 * CHECKPOINT_NOT_FOUND, CHECKPOINT_INCOMPLETE, SESSION_NOT_FOUND, BUFFER_EXISTS, BUFFER_NOT_FOUND of names, SEALED,
 * MAPPED, BUFFER_BUSY, DEVICE_NOT_FOUND, QUOTA_EXCEEDED, LIMIT_REACHED, CONTENT_DAMAGED, STORAGE_FULL, STORAGE_FAILED,
 * STORAGE_UNAVAILABLE. */
int gpubuf_checkpoint_restore(gpubuf_client *client, const char *checkpoint, const struct gpubuf_restore_params *params,
                              const struct gpubuf_how *how, struct gpubuf_restored *ret, struct gpubuf_error *err);

/* --- leases ------------------------------------------------------------------------------------------------------- */

/* Lists leases: the processes that map buffers, and exports. The caller frees *ret with gpubuf_lease_list_done().
 * Returns 0 or -1. Errors: those of every request. */
int gpubuf_lease_list(gpubuf_client *client, const struct gpubuf_page *page, struct gpubuf_lease_list *ret,
                      struct gpubuf_error *err);

/* Reads one lease. lease: its id. Returns 0 or -1. Errors: LEASE_NOT_FOUND. */
int gpubuf_lease_get(gpubuf_client *client, const char *lease, struct gpubuf_lease *ret, struct gpubuf_error *err);

/* Ends an export, or the lease of another process, which takes scope admin. lease: its id. The caller ends its own
 * leases by gpubuf_unmap(). Returns 0 or -1. Errors: LEASE_NOT_FOUND. */
int gpubuf_lease_delete(gpubuf_client *client, const char *lease, struct gpubuf_error *err);

struct gpubuf_export_params {
    bool write;     /* the importers may write */
    uint32_t ttl_s; /* it ends of itself after this; 0: the daemon's default, five minutes */
    uint64_t room[4];
};

/* Exports a buffer of kind ipc as a CUDA IPC handle, until its time is over or gpubuf_lease_delete(). No connection
 * owns the export. params may be NULL. The body of the answer is what NVIDIA Triton registers as CUDA shared memory.
 * Returns 0 or -1. Errors: BUFFER_NOT_FOUND, UNSUPPORTED if the memory has no such handle, LIMIT_REACHED. */
int gpubuf_export(gpubuf_client *client, const char *session, const char *buffer,
                  const struct gpubuf_export_params *params, const struct gpubuf_how *how, struct gpubuf_exported *ret,
                  struct gpubuf_error *err);

#ifdef __cplusplus
}
#endif

#endif
