/* Multipart uploads: one new generation of a buffer, uploaded by several requests. The bytes come as parts, in any
 * order and many at a time, or by appending. A multipart upload holds its memory and its quota from the beginning. Its
 * bytes become visible in one step when it is completed. It is not persisted. It ends with its session, when it is
 * deleted, or when it receives nothing for a while. Included by core.h. */
#ifndef GB_CORE_MULTIPART_MULTIPART_H
#define GB_CORE_MULTIPART_MULTIPART_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "base/hash.h"
#include "base/text.h"
#include "core/public/call.h"
#include "core/public/types.h"

struct gb_core;
struct gb_upload;
struct gb_upload_params;
struct gb_buffer_check;

#define GB_MULTIPARTS_MAX 64          /* open in one session, unless configured */
#define GB_MULTIPARTS_DONE_MAX 64     /* completed and still remembered in one session */
#define GB_MULTIPART_PARTS_MAX 10000  /* of one multipart upload */
#define GB_MULTIPART_HEADER_MAX 65536 /* bytes kept before they describe the payload */
#define GB_MULTIPART_TTL_S 3600       /* unless configured */

struct gb_multipart_call {
    struct gb_call base;
    bool created; /* this and the next two: of a completion */
    struct gb_transfer_times times;
    struct gb_buffer_rec buffer;
    struct gb_multipart_view multipart; /* also valid after an error, if there is such an upload */
};

/* Begins a multipart upload and allocates all of params->bytes. params->waker is not used. Takes params->check, which
 * is evaluated at the beginning and again at the commit. The call ends when parts can be received, and can be cancelled
 * while it waits for memory. Result: call->multipart. Errors: as gb_upload_begin; LIMIT_REACHED. */
void gb_multipart_begin(struct gb_core *core, const struct gb_upload_params *params, struct gb_multipart_call *call);

/* [now] Reads a multipart upload. Errors: SESSION_NOT_FOUND, UPLOAD_NOT_FOUND. */
int gb_multipart_get(struct gb_core *core, const struct gb_name *session, const char *id, struct gb_multipart_view *ret,
                     struct gb_error *err);
/* [now] As gb_session_list. */
int gb_multipart_list(struct gb_core *core, const struct gb_name *session, struct gb_page *page,
                      int (*visit)(void *, const struct gb_multipart_view *, struct gb_error *), void *arg,
                      struct gb_error *err);

/* [now] Begins a part, which the caller uses as an upload (gb_upload_room, _fill, _pause, _end, _free). A part arrives
 * as a whole or not at all. replace: overwrite whole parts that arrived; their bytes are missing until this part has
 * arrived. Errors: RANGE_NOT_SATISFIABLE; UPLOAD_BUSY if another part of the range is under way; UPLOAD_OVERLAP with
 * parts that arrived; UPLOAD_WRONG_KIND, LIMIT_REACHED. */
int gb_multipart_part(struct gb_core *core, const struct gb_name *session, const char *id, uint64_t offset,
                      uint64_t bytes, bool replace, struct gb_waker waker, struct gb_upload **ret,
                      struct gb_error *err);
/* [now] Returns true if the range consists of whole parts that arrived, with its checksum in *ret_crc. */
bool gb_multipart_arrived(struct gb_core *core, const struct gb_name *session, const char *id, uint64_t offset,
                          uint64_t bytes, uint32_t *ret_crc);
/* The result of a part after gb_upload_end. Returns 1 with its checksum in *ret_crc if it arrived; 0: wait for wake;
 * -1. ret_view, unless NULL, gets the multipart upload as it is after the part. Errors: why the multipart
 * upload has ended meanwhile. */
int gb_part_result(struct gb_upload *part, uint32_t *ret_crc, struct gb_multipart_view *ret_view, struct gb_error *err);

/* The expected checksum and digests of all bytes. The checksum is computed as bytes arrive. The digests are computed
 * from the memory at the completion, on a thread of their own. */
struct gb_multipart_expected {
    bool has_crc32c;
    uint32_t crc32c;
    struct gb_digest_set digests;
};

/* Completes a multipart upload: commits it if all bytes have arrived. Takes check, which is evaluated besides that of
 * the beginning; it may be NULL. expected is copied and may be NULL. While digests are computed the multipart upload
 * refuses bytes with UPLOAD_BUSY and can be deleted. Result: call->buffer, created, times, multipart. Missing bytes are
 * no error: multipart.completed is false and multipart.gaps lists them. Errors, which leave the multipart upload as it
 * is: UPLOAD_BUSY, DIGEST_MISMATCH, PRECONDITION_FAILED, SATURATED (see gb_buffer_scan). */
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
 * want bytes in all. */
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

/* Takes back all that a whole append brought, a description by its bytes included. params->check of that description is
 * the caller's again. */
void gb_append_discard(struct gb_append *append);
/* Whether that is done: the offset stands where it stood. If not, wait for wake. */
bool gb_append_discarded(struct gb_append *append);

/* Releases the append lock and frees the append. A whole one that has not ended was discarded before. spoiled: the
 * multipart upload can no longer be completed and ends. NULL is accepted. */
void gb_append_free(struct gb_append *append, bool spoiled);

#endif
