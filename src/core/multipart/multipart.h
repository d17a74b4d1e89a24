/* Uploads that take several requests: a multipart upload is one new generation of a buffer that grows by parts, in any order and many
 * at a time, or by appending. It holds its memory and its quota from the beginning, and nobody sees it before it is
 * completed; then it becomes visible in one step. It lives with the process and ends with its session, when it is
 * abandoned, or when nothing has come for a while. Included by core.h. */
#ifndef GB_CORE_MULTIPART_MULTIPART_H
#define GB_CORE_MULTIPART_MULTIPART_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/digest.h"
#include "base/error.h"
#include "base/name.h"
#include "core/public/types.h"

struct gb_core;
struct gb_call;
struct gb_upload;
struct gb_upload_params;
struct gb_buffer_check;
struct gb_buffer_rec;
struct gb_transfer_times;

#define GB_MULTIPARTS_MAX 64          /* open in one session, unless configured */
#define GB_MULTIPARTS_DONE_MAX 64     /* of one session that are completed and still remembered */
#define GB_MULTIPART_PARTS_MAX 10000  /* pieces that one is made of */
#define GB_MULTIPART_HEADER_MAX 65536 /* bytes kept before it is known what they are */
#define GB_MULTIPART_TTL_S 3600       /* unless configured */

/* Memory for the whole of params->bytes; params->wake is not used. Takes params->check, which is asked at the beginning and
 * again when the generation is to be seen. Refuses what gb_upload_begin refuses, and LIMIT_REACHED. Result: call->multipart,
 * once bytes can be taken. */
void gb_multipart_begin(struct gb_core *core, const struct gb_upload_params *params, struct gb_call *call);

/* [now] UPLOAD_NOT_FOUND. */
int gb_multipart_get(struct gb_core *core, const struct gb_name *session, const char *id, struct gb_multipart_view *ret,
                     struct gb_error *err);
/* [now] As gb_session_list. */
int gb_multipart_list(struct gb_core *core, const struct gb_name *session, int64_t after, unsigned limit,
                      int (*visit)(void *, const struct gb_multipart_view *, struct gb_error *), void *arg,
                      bool *ret_more, struct gb_error *err);

/* [now] One part: a transfer to be fed as an upload is (gb_upload_room, _fill, _pause, _end, _free). All of a part arrives
 * or nothing. With replace what arrived is overwritten, whole parts at a time, and is missing until this has arrived.
 * RANGE_NOT_SATISFIABLE, UPLOAD_BUSY where another part is under way, UPLOAD_OVERLAP with what arrived,
 * UPLOAD_WRONG_KIND, LIMIT_REACHED. */
int gb_multipart_part(struct gb_core *core, const struct gb_name *session, const char *id, uint64_t offset,
                      uint64_t bytes, bool replace, void (*wake)(void *arg), void *arg, struct gb_upload **ret,
                      struct gb_error *err);
/* [now] That range is made of whole parts that arrived, and this is its checksum. */
bool gb_multipart_arrived(struct gb_core *core, const struct gb_name *session, const char *id, uint64_t offset,
                          uint64_t bytes, uint32_t *ret_crc);
/* After gb_upload_end. 1: it arrived, and this is its checksum; 0: not yet; -1. */
int gb_part_result(struct gb_upload *part, uint32_t *ret_crc, struct gb_error *err);

/* Of all its bytes. The checksum was computed as they came; digests are computed of the memory, on a thread for that. */
struct gb_multipart_expected {
    bool has_crc32c;
    uint32_t crc32c;
    struct gb_digest_set digests;
};

/* Everything arrived: commits. check (may be NULL) is taken, and asked as well. expected: may be NULL; copied.
 * Result: call->buffer, created, times and multipart upload; where bytes are missing, no error: multipart upload says which, completed is
 * false. UPLOAD_BUSY, DIGEST_MISMATCH, PRECONDITION_FAILED, SATURATED (see gb_buffer_scan): it stays as it is. While
 * digests are computed it takes nothing (UPLOAD_BUSY) and can be deleted. */
void gb_multipart_complete(struct gb_core *core, const struct gb_name *session, const char *id,
                           const struct gb_buffer_check *check, const struct gb_multipart_expected *expected,
                           struct gb_call *call);

/* Ends it and what is under way, and frees its memory. */
void gb_multipart_delete(struct gb_core *core, const struct gb_name *session, const char *id, struct gb_call *call);

/* Where it stands, once nobody appends: who does is cut off, for a client that asks has lost its line. Result:
 * call->multipart. */
void gb_multipart_drain(struct gb_core *core, const struct gb_name *session, const char *id, struct gb_call *call);

/* --- appending -------------------------------------------------------------------------------------------------------------- */

/* The turn to append, of one request. Functions are called by one thread at a time; wake as a transfer's. */
struct gb_append;

/* [now] A new multipart upload and the turn; params name session and buffer, nothing else of them is looked at. app is kept with it and freed by free_app, at the latest with it; on failure at once. */
int gb_append_new(struct gb_core *core, const struct gb_upload_params *params, const uint64_t *length, void *app,
                  void (*free_app)(void *app), void (*wake)(void *arg), void *arg, struct gb_append **ret,
                  struct gb_error *err);
/* [now] The turn. UPLOAD_BUSY; UPLOAD_OFFSET_MISMATCH and UPLOAD_COMPLETED with *ret_offset, where it stands. */
int gb_append_open(struct gb_core *core, const struct gb_name *session, const char *id, uint64_t offset,
                   void (*wake)(void *arg), void *arg, struct gb_append **ret, uint64_t *ret_offset,
                   struct gb_error *err);
void *gb_append_app(struct gb_append *append);
void gb_append_view(struct gb_append *append, struct gb_multipart_view *ret);

/* The length of the whole is known now. UPLOAD_LENGTH_MISMATCH when another was given before. */
int gb_append_length(struct gb_append *append, uint64_t length, struct gb_error *err);

/* Until it is described: the first bytes, kept as they are. room as gb_upload_room, of at most want bytes in all. */
bool gb_append_described(struct gb_append *append);
int gb_append_header_room(struct gb_append *append, size_t want, void **ret_ptr, size_t *ret_n, struct gb_error *err);
void gb_append_header_fill(struct gb_append *append, size_t n);
const char *gb_append_header(struct gb_append *append, size_t *ret_n);

/* What it becomes. The first skip bytes of the lead are no payload, those behind are its beginning. Begins the upload and
 * takes params->check.arg on success. */
int gb_append_describe(struct gb_append *append, const struct gb_upload_params *params, uint64_t skip,
                       struct gb_error *err);

/* Of the payload, once described. As the functions of an upload; bytes that come are kept even when the end does not. */
int gb_append_room(struct gb_append *append, void **ret_ptr, size_t *ret_n, struct gb_error *err);
int gb_append_fill(struct gb_append *append, size_t n, struct gb_error *err);
void gb_append_pause(struct gb_append *append, bool stalled);
/* The request has no more. 1: told; 0: wait for wake and call it again; -1. */
int gb_append_end(struct gb_append *append, struct gb_error *err);
/* 1: what came is there, *ret says where it stands; 0: not yet; -1. */
int gb_append_result(struct gb_append *append, struct gb_multipart_view *ret, struct gb_error *err);

/* Gives the turn back. spoiled: nothing can become of the multipart upload, it ends. NULL is accepted. */
void gb_append_free(struct gb_append *append, bool spoiled);

#endif
