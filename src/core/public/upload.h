/* Uploads: bytes into a buffer. Included by core.h.
 *
 * * The caller uses a transfer from one thread at a time. If a function returns "wait for wake", the caller calls it
 * again after the wake. The wake may come before the function has returned, more than once, and without a cause. wake
 * must not block and must not take a lock that is held while the transfer is freed. */
#ifndef GB_CORE_PUBLIC_UPLOAD_H
#define GB_CORE_PUBLIC_UPLOAD_H

#include "core/public/types.h"

struct gb_core;

struct gb_upload;

/* [now] Checks params against records, quota and limits and allocates nothing. Returns 0, or -1 if gb_upload_begin
 * would refuse them. */
int gb_upload_check(struct gb_core *core, const struct gb_upload_params *params, struct gb_error *err);

/* [now] Begins an upload: reserves quota and starts the allocation. Without in_place the new bytes go into fresh memory
 * and replace the old ones in one step at the end; a partial write first copies the old bytes on the device. Takes
 * params->check.arg on success; the caller frees *ret with gb_upload_free. Errors: BUFFER_BUSY with in_place while
 * other transfers use the bytes. OUT_OF_MEMORY is reported by gb_upload_room. */
int gb_upload_begin(struct gb_core *core, const struct gb_upload_params *params, struct gb_upload **ret,
                    struct gb_error *err);
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
void gb_upload_blame(struct gb_upload *upload, enum gb_code why);

#endif
