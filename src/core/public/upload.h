/* What core.h shows of bytes that come in: uploads, groups of them, device writes and multipart uploads.
 *
 * * The caller uses a transfer from one thread at a time. If a function returns "wait for wake", the caller calls it
 * again after the wake. The wake may come before the function has returned, more than once, and without a cause. wake
 * must not block and must not take a lock that is held while the transfer is freed. */
#ifndef GB_CORE_PUBLIC_UPLOAD_H
#define GB_CORE_PUBLIC_UPLOAD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "base/hash.h"
#include "base/text.h"
#include "core/public/call.h"
#include "core/public/types.h"

struct gb_content;
struct gb_core;
struct gb_upload;

/* --- uploads ------------------------------------------------------------------------------------------------------ */

/* [now] Checks params against records, quota and limits and allocates nothing. Returns 0, or -1 if gb_upload_begin
 * would refuse them. */
int gb_upload_check(struct gb_core *core, const struct gb_upload_params *params, struct gb_error *err);

/* [now] Begins an upload: reserves quota and starts the allocation. Without in_place the new bytes go into fresh memory
 * and replace the old ones in one step at the end; a partial write first copies the old bytes on the device. Takes
 * params->check.arg on success; the caller frees *ret with gb_upload_free. Errors: BUFFER_BUSY with in_place while
 * other transfers use the bytes. OUT_OF_MEMORY is reported by gb_upload_room. */
int gb_upload_begin(struct gb_core *core, const struct gb_upload_params *params, struct gb_upload **ret,
                    struct gb_error *err);
/* Whether the upload has begun. One that writes into the buffer's present memory, or a part of it, first waits for the
 * earlier writes of its stream. Returns 1; 0: wait for wake; -1. Before gb_upload_end. */
int gb_upload_begun(struct gb_upload *upload, struct gb_error *err);
/* All bytes of the payload have come, though they may not have memory yet: the upload takes its place on its stream, at
 * gb_upload_end at the latest. Returns 0 or -1. */
int gb_upload_arrived(struct gb_upload *upload, struct gb_error *err);
/* Gives room for payload bytes, never beyond the payload's length. Returns 1 with room for *ret_n > 0 bytes at
 * *ret_ptr; 0: wait for wake; -1. Errors: BODY_TOO_LARGE after the payload's last byte. */
int gb_upload_room(struct gb_upload *upload, void **ret_ptr, size_t *ret_n, struct gb_error *err);
/* Reports n bytes written to that room. Updates the checksum and queues the copy of a full slot. */
int gb_upload_fill(struct gb_upload *upload, size_t n, struct gb_error *err);
/* Copies bytes[*done..n), which the caller has in memory, and advances *done. Returns 1: all are copied; 0: wait for
 * wake and call again; -1. */
int gb_upload_copy_in(struct gb_upload *upload, const void *bytes, size_t n, size_t *done, struct gb_error *err);
/* The client sends nothing now. If other transfers wait for slots, the upload releases its empty slot, and sends a
 * partly filled one if stalled or if it has been filling for long. The room given before is no longer valid. */
void gb_upload_pause(struct gb_upload *upload, bool stalled);
/* The request's key, which the upload's own commit marks as carried out. Called before gb_upload_end. */
void gb_upload_mark(struct gb_upload *upload, const struct gb_store_mark *mark);
/* Ends the payload. When the copies are done, the upload commits and the new bytes replace the old. gb_upload_result
 * gives the result after wake. */
int gb_upload_end(struct gb_upload *upload, struct gb_error *err);
/* The result after gb_upload_end. *ret_rec holds a reference, which gb_buffer_rec_done drops. Returns 1 with all
 * outputs set; 0: wait for wake; -1: the upload failed and the old bytes stay, or the state is PARTIAL with
 * in_place. */
int gb_upload_result(struct gb_upload *upload, struct gb_buffer_rec *ret_rec, bool *ret_created,
                     struct gb_transfer_times *ret_times, struct gb_error *err);
/* [now] As gb_call_cancel, after gb_upload_end. */
bool gb_upload_cancel(struct gb_upload *upload, bool act);
/* Frees the upload at any time and abandons one that has not ended; other threads finish the clean-up. wake is not
 * called after this returns. NULL is accepted. */
void gb_upload_free(struct gb_upload *upload);
/* Sets the reason, for the statistics, why the upload is about to be abandoned. The first reason counts. Without a
 * reason the upload counts as one whose bytes ended too early. */
void gb_upload_set_reason(struct gb_upload *upload, enum gb_code why);

/* --- upload groups ------------------------------------------------------------------------------------------------ */

/* An upload group is several uploads as one. Their payloads come one after the other. Their memory is allocated
 * beforehand. All buffers become visible in one step, with one commit, or none does. */

struct gb_upload_group;

struct gb_upload_group_params {
    struct gb_name session; /* of all */
    size_t count;           /* may be 0 */
    uint64_t bytes;         /* of all payloads */
    /* Fills in params for the i-th upload, in the order of the payloads, except session and waker. check is ignored,
     * and the group takes over a reference to labels. Names must differ. Called only by gb_upload_group_begin. Returns
     * 0 or -1. */
    int (*describe)(void *arg, size_t i, struct gb_upload_params *params, struct gb_error *err);
    void *describe_arg;
    struct gb_waker waker; /* as gb_upload_params */
};

/* [now] Checks whether the session's quota permits that many more bytes. Nothing else is checked. */
int gb_upload_group_check(struct gb_core *core, const struct gb_name *session, uint64_t bytes, struct gb_error *err);
/* [now] As gb_upload_begin, for all members: all of their quota is reserved and all allocations start, or none. */
int gb_upload_group_begin(struct gb_core *core, const struct gb_upload_group_params *params,
                          struct gb_upload_group **ret, struct gb_error *err);
/* As the functions of an upload. A failure of one member fails the group at once. */
int gb_upload_group_room(struct gb_upload_group *group, void **ret_ptr, size_t *ret_n, struct gb_error *err);
int gb_upload_group_fill(struct gb_upload_group *group, size_t n, struct gb_error *err);
void gb_upload_group_pause(struct gb_upload_group *group, bool stalled);
int gb_upload_group_end(struct gb_upload_group *group, struct gb_error *err);
/* As gb_upload_result. *ret_times: the copy time of all members, the longest queue time of one. */
int gb_upload_group_result(struct gb_upload_group *group, struct gb_transfer_times *ret_times, struct gb_error *err);
/* The i-th member's record, after gb_upload_group_result returned 1. */
const struct gb_buffer_rec *gb_upload_group_record(const struct gb_upload_group *group, size_t i, bool *ret_created);
void gb_upload_group_set_reason(struct gb_upload_group *group, enum gb_code why); /* as gb_upload_set_reason */
void gb_upload_group_free(struct gb_upload_group *group);

/* --- device writes: copy and fill --------------------------------------------------------------------------------- */

/* The bytes of a copy's source as of one moment, or the error. Zeroed: not resolved yet. */
struct gb_copy_source {
    bool resolved;
    struct gb_content *content; /* a reference; NULL: zeros, or an error */
    struct gb_buffer_rec rec;
    struct gb_error error;
};
/* NULL is accepted. [any thread, never blocks] */
void gb_copy_source_done(struct gb_copy_source *source);

#define GB_FROM_TAG_SIZE 128 /* of an entity tag, with its quotes */

/* A copy from another buffer or a fill with a pattern. It writes [offset, offset + bytes) of a buffer, in the order of
 * a stream of the destination's session. */
struct gb_device_write_params {
    struct gb_name session;
    struct gb_name name;
    struct gb_name stream; /* "" is "default" */
    bool copy;             /* else fill */
    bool share;            /* of a copy: gb_buffer_link is asked */
    struct gb_name from_session, from;
    uint64_t from_offset;
    uint64_t pattern; /* its low `width` bytes, least significant first */
    unsigned width;   /* 1, 2, 4 or 8; offset and bytes are multiples of it */
    uint64_t offset;
    bool has_bytes; /* else all bytes of the source from from_offset on; for a fill all of the buffer from offset on */
    uint64_t bytes;
    bool in_place;                /* as in gb_upload_params */
    uint64_t holder;              /* as in gb_upload_params */
    bool to_host_side;            /* of a mirrored buffer; else its device side */
    bool side_named;              /* refuse a buffer that is not mirrored; to_host_side always does */
    unsigned wait_ms;             /* how long to wait for memory to become free */
    struct gb_buffer_check check; /* of the destination; likewise */
    /* Asked about the source, which exists, when the write's turn comes. NULL: no condition. */
    int (*from_check)(void *tag, const struct gb_buffer_rec *rec, struct gb_error *err);
    char from_tag[GB_FROM_TAG_SIZE]; /* its argument */
    struct gb_copy_source *source;   /* resolved by gb_copy_sources_resolve, and taken; NULL: resolve it now */
};

/* [now] Resolves the sources of copies that have params->source. The sources in one session are resolved as of one
 * moment. */
void gb_copy_sources_resolve(struct gb_core *core, const struct gb_device_write_params *writes, size_t count);

/* Makes a device write. Without in_place readers see the old bytes or the new, as with an upload. The source's present
 * bytes are copied, even if the source is replaced or deleted meanwhile. A copy to offset 0 creates a destination that
 * does not exist: like the source if all of it is copied, else uint8 of its kind. The call ends when the bytes are
 * written and the record is committed. Result: call->buffer, created, way, times. Errors: INVALID_ARGUMENT for ranges
 * out of bounds and for overlapping in_place ranges of one buffer; BUFFER_NOT_FOUND; BUFFER_BUSY; BUFFER_PARTIAL or
 * CONTENT_LOST of the source, or of a destination that keeps other bytes; what the checks say. */
void gb_buffer_write(struct gb_core *core, const struct gb_device_write_params *params, struct gb_buffer_call *call);

/* A link: the buffer gets the bytes of another one of its session, which is sealed, and keeps no others. Both have one
 * memory, and one file if they are durable. Of params count session, name, stream, from, from_check and check. Result:
 * call->buffer, created. Errors: as of a copy; INVALID_ARGUMENT for a source that is not sealed, is mirrored or of
 * another session; SEALED or ADOPTED of the buffer itself. */
void gb_buffer_link(struct gb_core *core, const struct gb_device_write_params *params, struct gb_buffer_call *call);

/* [now] Wants the source in memory if a link to it needs that: asked before the link takes its place on the stream.
 * Returns 0, or -1 as gb_buffer_load. Whatever else is wrong is for the link to say. */
int gb_buffer_link_load(struct gb_core *core, const struct gb_device_write_params *params, struct gb_error *err);

/* --- mirrored buffers --------------------------------------------------------------------------------------------- */

/* Makes one side current; copies only if it is stale (call->copied). A buffer that was never written gets that side,
 * zeroed, and the head moves there. check->arg is released with the call; check may be NULL. Result: call->buffer,
 * copied, way, times. Errors: INVALID_ARGUMENT if the buffer is not mirrored. */
void gb_buffer_mirror_sync(struct gb_core *core, const struct gb_locator *at, bool to_host,
                           const struct gb_name *stream, const struct gb_buffer_check *check,
                           struct gb_buffer_call *call);

struct gb_mirror_reserve {
    bool host; /* else the device side */
    uint64_t bytes;
    struct gb_name stream; /* "" is "default" */
    unsigned wait_ms;      /* how long to wait for memory to become free */
};

/* Gives one side memory of at least that many bytes, ahead of an upload. Memory that is large enough stays. Other
 * memory, also of another process, is replaced: that of a current side after its bytes were copied, that of any other
 * side before. The rest is zeroed. Head and generation stay. check as above. Result: call->buffer; after a failure the
 * side may be empty, and the detail says so. Errors: SEALED, MAPPED, BUFFER_PARTIAL, CONTENT_LOST, BUFFER_BUSY;
 * INVALID_ARGUMENT if the buffer is not mirrored; QUOTA_EXCEEDED, OUT_OF_MEMORY. */
void gb_buffer_mirror_reserve(struct gb_core *core, const struct gb_locator *at, const struct gb_mirror_reserve *what,
                              const struct gb_buffer_check *check, struct gb_buffer_call *call);

/* Frees one side or both. If both are freed, head becomes uninitialized and the buffer reads as zeros. Result:
 * call->buffer. Errors: BUFFER_SIDE_CURRENT if the only current side would be freed alone. */
void gb_buffer_mirror_release(struct gb_core *core, const struct gb_locator *at, bool host, bool device,
                              const struct gb_buffer_check *check, struct gb_buffer_call *call);

/* Frees that side as an adoption of 0 bytes does: also if it alone is current. Then head becomes uninitialized, and the
 * generation rises. Result: call->buffer. Errors: SEALED, MAPPED, BUFFER_PARTIAL, CONTENT_LOST, BUFFER_BUSY. */
void gb_buffer_mirror_drop(struct gb_core *core, const struct gb_locator *at, enum gb_side side,
                           const struct gb_buffer_check *check, struct gb_buffer_call *call);

/* --- multipart uploads -------------------------------------------------------------------------------------------- */

/* A multipart upload is one new generation of a buffer, uploaded by several requests. The bytes come as parts, in any
 * order and many at a time, or by appending. A multipart upload holds its memory and its quota from the beginning. Its
 * bytes become visible in one step when it is completed. It is not persisted. It ends with its session, when it is
 * deleted, or when it receives nothing for a while. */

#define GB_MULTIPARTS_MAX 64                        /* open in one session, unless configured */
#define GB_MULTIPARTS_DONE_MAX 64                   /* completed and still remembered in one session */
#define GB_MULTIPART_PARTS_MAX 10000                /* of one multipart upload */
#define GB_MULTIPART_HEADER_MAX (16u << 20)         /* bytes of one kept before they describe the payload */
#define GB_MULTIPART_HEADERS_BYTES_MAX (256u << 20) /* and of all */
#define GB_MULTIPART_TTL_S 3600                     /* unless configured */

struct gb_multipart_call {
    struct gb_call base;
    bool created; /* this and the next two: of a completion */
    struct gb_transfer_times times;
    struct gb_buffer_rec buffer;
    struct gb_multipart_view multipart; /* also valid after an error, if there is such an upload */
};

/* Begins a multipart upload and allocates all of params->bytes, which with params->gaps are those of the memory, while
 * offset and bytes of parts, views and checksums are those of the file. params->waker is not used. Takes
 * params->check, which is evaluated at the beginning and again at the commit. The call ends when parts can be received,
 * and can be cancelled while it waits for memory. Result: call->multipart. Errors: as gb_upload_begin; LIMIT_REACHED.
 */
void gb_multipart_begin(struct gb_core *core, const struct gb_upload_params *params, struct gb_multipart_call *call);

/* [now] Reads a multipart upload. Errors: SESSION_NOT_FOUND, UPLOAD_NOT_FOUND. */
int gb_multipart_get(struct gb_core *core, const struct gb_name *session, const char *id, struct gb_multipart_view *ret,
                     struct gb_error *err);
/* [now] As gb_session_list. */
int gb_multipart_list(struct gb_core *core, const struct gb_name *session, struct gb_page *page,
                      int (*visit)(void *, const struct gb_multipart_view *, struct gb_error *), void *arg,
                      struct gb_error *err);

/* [now] Begins a part, which the caller uses as an upload (gb_part_room, gb_part_fill, gb_upload_pause, _end, _free;
 * without gaps gb_upload_room and _fill do). A part arrives as a whole or not at all. replace: overwrite whole parts
 * that arrived; their bytes are missing until this part has arrived. Errors: RANGE_NOT_SATISFIABLE; UPLOAD_BUSY if
 * another part of the range is under way; UPLOAD_OVERLAP with parts that arrived; UPLOAD_WRONG_KIND, LIMIT_REACHED. */
int gb_multipart_part(struct gb_core *core, const struct gb_name *session, const char *id, uint64_t offset,
                      uint64_t bytes, bool replace, struct gb_waker waker, struct gb_upload **ret,
                      struct gb_error *err);
/* [now] Returns true if the range consists of whole parts that arrived, with its checksum in *ret_crc. */
bool gb_multipart_arrived(struct gb_core *core, const struct gb_name *session, const char *id, uint64_t offset,
                          uint64_t bytes, uint32_t *ret_crc);
/* As gb_upload_room and gb_upload_fill. */
int gb_part_room(struct gb_upload *part, void **ret_ptr, size_t *ret_n, struct gb_error *err);
int gb_part_fill(struct gb_upload *part, size_t n, struct gb_error *err);
/* The result of a part after gb_upload_end. Returns 1 with its checksum in *ret_crc if it arrived; 0: wait for wake;
 * -1. ret_view, unless NULL, gets the multipart upload as it is after the part. Errors: the reason why the multipart
 * upload has ended meanwhile. */
int gb_part_result(struct gb_upload *part, uint32_t *ret_crc, struct gb_multipart_view *ret_view, struct gb_error *err);

/* The expected checksum and digests of all bytes. The checksum is computed as bytes arrive. The digests are computed
 * from the memory at the completion, on a thread of their own. */
struct gb_multipart_expected {
    bool has_crc32c;
    uint32_t crc32c;
    struct gb_digest_set digests;
    const void *head; /* bytes that the digests have before those of the memory */
    size_t head_n;
    struct gb_scan_choice choice; /* what of the memory they leave out: its gaps do that too; taken in every case */
};

/* Completes a multipart upload: commits it if all bytes have arrived. Takes check, which is evaluated besides that of
 * the beginning; it may be NULL. expected is copied and may be NULL; head is not used later. While digests are computed
 * the multipart upload refuses bytes with UPLOAD_BUSY and can be deleted. Result: call->buffer, created, times,
 * multipart. Missing bytes are no error: multipart.completed is false and multipart.gaps lists them. Errors, which
 * leave the multipart upload as it is: UPLOAD_BUSY, DIGEST_MISMATCH, PRECONDITION_FAILED, SATURATED (see
 * gb_buffer_scan). */
void gb_multipart_complete(struct gb_core *core, const struct gb_name *session, const char *id,
                           const struct gb_buffer_check *check, const struct gb_multipart_expected *expected,
                           struct gb_multipart_call *call);

/* Ends a multipart upload with its parts and appends under way, and frees its memory. The call ends when it is free. */
void gb_multipart_delete(struct gb_core *core, const struct gb_name *session, const char *id,
                         struct gb_multipart_call *call);

/* Reads the offset when no append runs. A running append is cut off, because a client that queries the offset has lost
 * its connection. Result: call->multipart. */
void gb_multipart_drain(struct gb_core *core, const struct gb_name *session, const char *id,
                        struct gb_multipart_call *call);

/* --- appending ---------------------------------------------------------------------------------------------------- */

/* One request that appends; it holds the append lock. The caller uses it from one thread at a time. wake as for a
 * transfer. */
struct gb_append;

/* [now] Makes a multipart upload and takes its append lock. Of params only the session and the buffer's name are used.
 * Takes app in every case: free_app frees it at once on failure, else with the multipart upload at the latest. */
int gb_append_new(struct gb_core *core, const struct gb_upload_params *params, const uint64_t *length, void *app,
                  void (*free_app)(void *app), struct gb_waker waker, struct gb_append **ret, struct gb_error *err);
/* [now] Takes the append lock to continue at offset. *ret_offset: the present offset. Errors: UPLOAD_BUSY,
 * UPLOAD_WRONG_KIND; UPLOAD_OFFSET_MISMATCH and UPLOAD_COMPLETED, which set *ret_offset. */
int gb_append_open(struct gb_core *core, const struct gb_name *session, const char *id, uint64_t offset,
                   struct gb_waker waker, struct gb_append **ret, uint64_t *ret_offset, struct gb_error *err);
/* Before its first byte: its bytes count when it has ended (gb_append_end), or not at all. */
void gb_append_whole(struct gb_append *append);
void *gb_append_app(struct gb_append *append);
void gb_append_view(struct gb_append *append, struct gb_multipart_view *ret);

/* Sets the total length. Errors: UPLOAD_LENGTH_MISMATCH if another length was set before. */
int gb_append_length(struct gb_append *append, uint64_t length, struct gb_error *err);

/* Until gb_append_describe the first bytes are kept as the header prefix. header_room as gb_upload_room, for at most
 * want bytes in all; LIMIT_REACHED if the headers of all uploads take too much. */
bool gb_append_described(struct gb_append *append);
int gb_append_header_room(struct gb_append *append, size_t want, void **ret_ptr, size_t *ret_n, struct gb_error *err);
void gb_append_header_fill(struct gb_append *append, size_t n);
const char *gb_append_header(struct gb_append *append, size_t *ret_n);

/* Describes the payload and begins the upload. skip: bytes of the header prefix before the payload; the bytes after
 * them are the payload's first. Takes params->check.arg on success. */
int gb_append_describe(struct gb_append *append, const struct gb_upload_params *params, uint64_t skip,
                       struct gb_error *err);

/* Receive the payload after gb_append_describe, as the functions of an upload. Received bytes are kept even if the
 * request breaks off, unless the append counts as a whole. */
int gb_append_room(struct gb_append *append, void **ret_ptr, size_t *ret_n, struct gb_error *err);
int gb_append_fill(struct gb_append *append, size_t n, struct gb_error *err);
void gb_append_pause(struct gb_append *append, bool stalled);
/* Ends the request's bytes. Returns 1; 0: wait for wake and call again; -1. */
int gb_append_end(struct gb_append *append, struct gb_error *err);
/* The result after gb_append_end. Returns 1 if the bytes have arrived, with the present view in *ret; 0: wait for wake;
 * -1. */
int gb_append_result(struct gb_append *append, struct gb_multipart_view *ret, struct gb_error *err);

/* Takes back all bytes of an append that counts as a whole, and a description by them. params->check of that
 * description is the caller's again. */
void gb_append_discard(struct gb_append *append);
/* Returns true if that is done, and the offset is the former one. If not, wait for wake. */
bool gb_append_discarded(struct gb_append *append);

/* Releases the append lock and frees the append. An append that counts as a whole and has not ended was discarded
 * before. spoiled: the multipart upload can no longer be completed and ends. NULL is accepted. */
void gb_append_free(struct gb_append *append, bool spoiled);

#endif
