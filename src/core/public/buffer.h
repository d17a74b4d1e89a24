/* Buffers, downloads and scans: what core.h shows of records and of bytes that go out. */
#ifndef GB_CORE_PUBLIC_BUFFER_H
#define GB_CORE_PUBLIC_BUFFER_H

#include <stdbool.h>
#include <stddef.h>

#include "base/hash.h"
#include "core/public/call.h"
#include "core/public/types.h"

struct gb_call;
struct gb_core;
struct gb_store_mark;

/* --- buffers ------------------------------------------------------------------------------------------------------ */

/* Creates a buffer of zeroed memory under a new name. params->bytes may be 0. wait_ms: how long to wait for memory to
 * become free. Result: call->buffer. Errors: BUFFER_EXISTS, QUOTA_EXCEEDED, OUT_OF_MEMORY, LIMIT_REACHED; UNSUPPORTED
 * for the kind. */
void gb_buffer_create(struct gb_core *core, const struct gb_buffer_params *params, unsigned wait_ms,
                      struct gb_buffer_call *call);
/* [now] Reads a buffer's record. *ret holds a reference, which gb_buffer_rec_done() drops. */
int gb_buffer_get(struct gb_core *core, const struct gb_locator *at, struct gb_buffer_rec *ret, struct gb_error *err);
/* [now] Reads the times of the last large transfer of the bytes that the buffer has now. See struct
 * gb_last_transfer. */
int gb_buffer_last_transfer(struct gb_core *core, const struct gb_locator *at, struct gb_last_transfer *ret,
                            struct gb_error *err);
/* Changes labels, dtype and shape. Result: call->buffer. Errors: SHAPE_MISMATCH if dtype and shape describe another
 * number of bytes. */
void gb_buffer_patch(struct gb_core *core, const struct gb_buffer_params *params, const struct gb_buffer_check *check,
                     struct gb_buffer_call *call);
/* Deletes a buffer. Reads of its bytes that have begun finish undisturbed. Result: call->buffer. */
void gb_buffer_delete(struct gb_core *core, const struct gb_locator *at, const struct gb_buffer_check *check,
                      struct gb_buffer_call *call);
/* [now] As gb_buffer_get, in a session that the caller holds. */
int gb_buffer_get_in(struct gb_session *session, const struct gb_name *name, struct gb_buffer_rec *ret,
                     struct gb_error *err);
/* [now] As gb_buffer_get_in, as an upload sees the buffer that begins on that stream now: an earlier write of it may be
 * queued already. *ret_pending: an earlier request may still change or make it otherwise. */
int gb_buffer_see_in(struct gb_session *session, const struct gb_name *name, const struct gb_name *stream,
                     struct gb_buffer_rec *ret, bool *ret_pending, struct gb_error *err);
/* [now] As gb_session_list. */
int gb_buffer_list(struct gb_core *core, const struct gb_name *session, struct gb_page *page,
                   int (*visit)(void *, const struct gb_buffer_rec *, struct gb_error *), void *arg,
                   struct gb_error *err);

/* Makes the content immutable: later writes and leases for writing are refused with SEALED. Deleting is still
 * permitted, and so are new labels and another shape of the same bytes. check as for gb_buffer_patch. A sealed buffer
 * stays sealed, without an error. Result: call->buffer. Errors: MAPPED while there is a lease for writing; BUFFER_BUSY
 * during a write in place; BUFFER_PARTIAL, CONTENT_LOST, ESCAPED. */
void gb_buffer_seal(struct gb_core *core, const struct gb_locator *at, const struct gb_buffer_check *check,
                    struct gb_buffer_call *call);

/* As gb_buffer_delete, but mapped bytes do not prevent it. The buffer is deleted when the call ends; its memory is
 * freed when the last lease ends. Result: call->buffer, and call->held_bytes: bytes that are still mapped. */
void gb_buffer_delete_when_unmapped(struct gb_core *core, const struct gb_locator *at,
                                    const struct gb_buffer_check *check, struct gb_buffer_call *call);

/* Reads the pointer attributes of a buffer's memory. For a mirrored buffer the result has the device address of one
 * side and the host address of the other. A buffer without memory has type UNREGISTERED and no address. Result:
 * call->buffer, call->attr. Errors: CONTENT_LOST. */
void gb_buffer_attributes(struct gb_core *core, const struct gb_locator *at, struct gb_attributes_call *call);

/* --- transaction batches ------------------------------------------------------------------------------------------ */

/* A transaction batch commits the changes of many calls as one. Each call does its work, and its transaction waits in
 * the batch until all have arrived. */

struct gb_transaction_batch;

/* Makes a batch for `calls` calls of one session, each of which changes another buffer. Calls that create buffers are
 * not permitted. atomic: if one call fails, all fail and nothing is changed. Otherwise those that are not refused are
 * one transaction of the database; if they cannot be committed together, each is by itself. mark: committed with them,
 * copied; may be NULL. Returns a reference, or NULL when memory is exhausted. */
struct gb_transaction_batch *gb_transaction_batch_new(size_t calls, bool atomic, const struct gb_store_mark *mark);
bool gb_transaction_batch_atomic(const struct gb_transaction_batch *batch); /* NULL is accepted: false */
/* Adds a call before it is started. The call has a reference to the batch until its transaction joins the batch or the
 * call ends. */
void gb_transaction_batch_add(struct gb_transaction_batch *batch, struct gb_call *call);
/* Tells the batch that `calls` of its calls will never be made, which counts as their failure. */
void gb_transaction_batch_skip(struct gb_transaction_batch *batch, size_t calls);
void gb_transaction_batch_unref(struct gb_transaction_batch *batch); /* NULL is accepted */

/* --- downloads ---------------------------------------------------------------------------------------------------- */

/* The rules of upload.h on threads and wake hold here too. */

struct gb_download;

/* [now] Finds the buffer and keeps its present bytes readable, even if the buffer is replaced or deleted. Does not use
 * the device. The caller frees *ret with gb_download_free. Errors: BUFFER_BUSY, BUFFER_PARTIAL, CONTENT_LOST. */
int gb_download_open(struct gb_core *core, const struct gb_name *session, const struct gb_name *name,
                     const struct gb_name *stream, struct gb_waker waker, struct gb_download **ret,
                     struct gb_error *err);
/* [now] As gb_download_open, in a session that the caller holds. */
int gb_download_open_in(struct gb_session *session, const struct gb_name *name, const struct gb_name *stream,
                        struct gb_waker waker, struct gb_download **ret, struct gb_error *err);
/* [now] As gb_download_open_in, in the order of the stream: while an earlier write of the buffer on it, or on a stream
 * that it follows, is under way, the download waits for the bytes of that. Its record is there when gb_download_turn
 * has returned 1. */
int gb_download_open_after(struct gb_session *session, const struct gb_name *name, const struct gb_name *stream,
                           struct gb_waker waker, struct gb_download **ret, struct gb_error *err);
/* [now] Whether a download of that buffer on the stream would have to wait for its turn. */
bool gb_download_awaits(struct gb_session *session, const struct gb_name *name, const struct gb_name *stream);
/* Whether the download has its bytes; if the earlier write has failed, those before it. Returns 1; 0: wait for wake; -1
 * with the errors above. */
int gb_download_turn(struct gb_download *download, struct gb_error *err);
const struct gb_buffer_rec *gb_download_record(const struct gb_download *download);
/* Starts the download of the bytes [offset, offset + length). One start a download. Errors: RANGE_NOT_SATISFIABLE. */
int gb_download_start(struct gb_download *download, uint64_t offset, uint64_t length, struct gb_error *err);
/* As gb_download_start, for the bytes that a view picks (NULL: all bytes), which lie within the buffer. spans picks
 * from the view's sequence, in the order given (NULL: all of it); it is borrowed until gb_download_free. */
int gb_download_start_view(struct gb_download *download, const struct gb_view *view, const struct gb_span *spans,
                           unsigned count, struct gb_error *err);
/* Gives the next bytes; the copy of the block after them is in flight meanwhile. Returns 1 with *ret_n > 0 bytes at
 * *ret_ptr, valid until gb_download_sent covers them; 0: wait for wake; -1. */
int gb_download_next(struct gb_download *download, const void **ret_ptr, size_t *ret_n, struct gb_error *err);
/* After a failure: the buffer was written or deleted before its bytes could be read; another download gets what it has
 * now. */
bool gb_download_replaced(const struct gb_download *download);
void gb_download_sent(struct gb_download *download, size_t n);
/* The client reads nothing now. If other transfers wait for slots, the download releases its own and copies their
 * blocks again later. The bytes that gb_download_next gave are no longer valid. */
void gb_download_pause(struct gb_download *download);
/* The times so far. They are complete when all bytes were given. */
void gb_download_times(const struct gb_download *download, struct gb_transfer_times *ret);
/* Ends the download. complete: every byte reached the client, for the counters. wake is not called after this returns.
 * NULL is accepted. */
void gb_download_free(struct gb_download *download, bool complete);

/* --- download groups ---------------------------------------------------------------------------------------------- */

/* Several downloads as one: the bytes of many buffers, of one moment, one after the other. */

struct gb_download_group;

/* [now] Holds the present bytes of all the buffers, under one hold of the session's lock, against replacement and
 * deletion; touches no device. lenient: those that are not there are left out. BUFFER_NOT_FOUND, BUFFER_BUSY,
 * BUFFER_PARTIAL, CONTENT_LOST, each naming the buffer. While earlier writes of them on the stream are under way, it
 * waits for these first: gb_download_group_turn. */
int gb_download_group_open(struct gb_core *core, const struct gb_name *session, const struct gb_name *names,
                           size_t count, bool lenient, const struct gb_name *stream, struct gb_waker waker,
                           struct gb_download_group **ret, struct gb_error *err);
/* Whether the group has its buffers. Returns 1; 0: wait for wake; -1 with the errors above. */
int gb_download_group_turn(struct gb_download_group *group, struct gb_error *err);
size_t gb_download_group_count(const struct gb_download_group *group);
/* Valid until the start. */
const struct gb_buffer_rec *gb_download_group_record(const struct gb_download_group *group, size_t i);
/* Once: the bytes are given in this order, a permutation of [0, count). */
int gb_download_group_start(struct gb_download_group *group, const size_t *order, struct gb_error *err);
/* As the functions of a download. The copies of the next buffers are in flight while one is sent. */
int gb_download_group_next(struct gb_download_group *group, const void **ret_ptr, size_t *ret_n, struct gb_error *err);
void gb_download_group_sent(struct gb_download_group *group, size_t n);
void gb_download_group_pause(struct gb_download_group *group);
void gb_download_group_times(const struct gb_download_group *group, struct gb_transfer_times *ret);
void gb_download_group_free(struct gb_download_group *group);

/* --- scans: reading every byte of a buffer once, for checksums ---------------------------------------------------- */

struct gb_scan_params {
    struct gb_name session;
    struct gb_name name;
    struct gb_name stream; /* "" is "default" */
    const void *head;      /* hashed before the bytes of the buffer; copied */
    size_t head_n;
    unsigned digests; /* of head and bytes: a set of 1u << enum gb_digest_alg */
    struct gb_scan_choice choice;
    bool verify;                  /* the bytes' CRC32C too, which goes into a record that does not know it */
    struct gb_buffer_check check; /* asked once, of the bytes that are read */
};

struct gb_scan_call {
    struct gb_call base;
    struct gb_buffer_rec buffer; /* as it was read */
    bool had_crc32c;             /* of the record, when the reading began */
    uint32_t crc32c;             /* as read, with verify */
    struct gb_digest digest[GB_DIGEST_ALGS];
};

/* Reads the bytes as they are now, whatever becomes of the buffer meanwhile, in the order of the stream, out of the
 * device's memory as a download does, on a thread for that. Not counted as a download. BUFFER_BUSY, BUFFER_PARTIAL,
 * CONTENT_LOST; SATURATED beyond GB_SCANS_MAX; DRAINING when the core closes before the end. */
void gb_buffer_scan(struct gb_core *core, const struct gb_scan_params *params, struct gb_scan_call *call);

#endif
