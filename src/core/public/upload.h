/* Bytes into a buffer.
 *
 * A transfer's functions are called by one thread at a time. Where one says "wait for wake", the wake may come before
 * it has returned, more than once, and for nothing: then ask again. wake must not block and must not take a lock that
 * is held while the transfer is freed. Comes with core.h. */
#ifndef GB_CORE_PUBLIC_UPLOAD_H
#define GB_CORE_PUBLIC_UPLOAD_H

#include "core/public/types.h"

struct gb_core;

struct gb_upload;

/* [now] Everything that can be refused without the bytes is refused here, against records, quota and limits: nothing is
 * allocated yet. */
int gb_upload_check(struct gb_core *core, const struct gb_upload_params *params, struct gb_error *err);

/* [now] Reserves quota and starts the allocation. Takes params->check.arg on success. Without in_place the new bytes
 * stand in fresh memory and replace the old in one step at the end (a partial write first copies the old bytes on the
 * device); BUFFER_BUSY for in_place while others read or write it in place; OUT_OF_MEMORY arrives through room. */
int gb_upload_begin(struct gb_core *core, const struct gb_upload_params *params, struct gb_upload **ret,
                    struct gb_error *err);
/* 1: room for *ret_n > 0 payload bytes at *ret_ptr; 0: wait for wake; -1. Never more than the payload in all: after its
 * last byte BODY_TOO_LARGE. */
int gb_upload_room(struct gb_upload *upload, void **ret_ptr, size_t *ret_n, struct gb_error *err);
/* n bytes of that room are written: the checksum is taken, a full slot is sent on its way. */
int gb_upload_fill(struct gb_upload *upload, size_t n, struct gb_error *err);
/* Copies bytes[*done..n) in, which are in memory already, and counts *done up. 1: all are in; 0: wait for wake and call
 * it again; -1. */
int gb_upload_copy_in(struct gb_upload *upload, const void *bytes, size_t n, size_t *done, struct gb_error *err);
/* The client has nothing to give now: a slot that others wait for is let go, an empty one at once, one in part filled
 * when stalled, or when it has been filling for long. What room gave is void. */
void gb_upload_pause(struct gb_upload *upload, bool stalled);
/* All payload bytes are there: waits for the copies, commits, swaps. Result by gb_upload_result after wake. */
int gb_upload_end(struct gb_upload *upload, struct gb_error *err);
/* 1: done, outputs set, and the record holds a reference (gb_buffer_rec_done); 0: not yet; -1: failed, the old bytes
 * stand (state PARTIAL for in_place). */
int gb_upload_result(struct gb_upload *upload, struct gb_buffer_rec *ret_rec, bool *ret_created,
                     struct gb_transfer_times *ret_times, struct gb_error *err);
/* [now] As gb_call_cancel, once all bytes are there. */
bool gb_upload_cancel(struct gb_upload *upload, bool act);
/* Abandons what has not ended; safe at any time, NULL accepted, the rest is cleaned up behind. wake is not called after
 * this returns. */
void gb_upload_free(struct gb_upload *upload);
/* Why it is about to be abandoned, for the statistics; the first word counts. Without one the bytes ended too early. */
void gb_upload_blame(struct gb_upload *upload, enum gb_code why);

#endif
