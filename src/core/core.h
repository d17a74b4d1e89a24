/* Every use case as one function. No JSON, no HTTP, no SQL, no CUDA.
 *
 * Functions marked [now] finish at once, take only short locks and may be called from an HTTP loop. Those that take a
 * gb_call start work and return at once, also callable from an HTTP loop; call->done runs once, on some other thread or
 * before the function has returned, when everything the call did is durable and visible, or nothing of it is. */
#ifndef GB_CORE_CORE_H
#define GB_CORE_CORE_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "backend/backend.h"
#include "base/digest.h"
#include "base/error.h"
#include "core/multipart/multipart.h"
#include "core/observe/history.h"
#include "core/public/call.h"
#include "core/public/pool.h"
#include "core/public/stream.h"
#include "core/public/types.h"
#include "model/model.h"
#include "store/store.h"

struct gb_core;

/* Loads sessions and buffer records (their bytes are LOST: they died with the earlier process), makes the session
 * "default" when absent, pins the slots, starts the threads. */
int gb_core_open(const struct gb_core_config *config, struct gb_core **ret, struct gb_error *err);

/* All calls and transfers must have ended. Frees device memory, saves the counters, joins the threads. NULL accepted. */
void gb_core_close(struct gb_core *core);

/* [now] The device is dead: -1 with DEVICE_LOST (or what the backend said). Readiness asks this. */
int gb_core_health(struct gb_core *core, struct gb_error *err);
/* [now] The database refuses changes: -1 with STORE_UNAVAILABLE. So does this. */
int gb_core_writable(struct gb_core *core, struct gb_error *err);

/* --- sessions --------------------------------------------------------------------------------------------------------- */

/* Looking at a session (get, list, statistics) is no sign of life: a dashboard that polls keeps nothing alive. Everything
 * else that names it is, and so is a transfer while it runs. */

/* SESSION_EXISTS, LIMIT_REACHED. Result: call->session. */
void gb_session_create(struct gb_core *core, const struct gb_session_params *params, struct gb_session_call *call);
/* [now] SESSION_NOT_FOUND. */
int gb_session_get(struct gb_core *core, const struct gb_name *name, struct gb_session_view *ret, struct gb_error *err);
/* Lowering a quota below what is used is permitted: it stops new allocations. */
void gb_session_patch(struct gb_core *core, const struct gb_name *name, const struct gb_session_params *params,
                      const struct gb_session_check *check, struct gb_session_call *call);
/* Frees everything in it in stream order; transfers in flight end undisturbed or with SESSION_NOT_FOUND.
 * SESSION_PROTECTED for "default". */
void gb_session_delete(struct gb_core *core, const struct gb_name *name, const struct gb_session_check *check,
                       struct gb_call *call);
/* [now] A sign of life and nothing else. */
int gb_session_heartbeat(struct gb_core *core, const struct gb_name *name, struct gb_session_view *ret,
                         struct gb_error *err);
/* [now] Sessions with id > after_id, by id, at most limit. A visitor that returns -1 ends the walk. It is called without
 * locks held. *ret_more: there are more. */
int gb_session_list(struct gb_core *core, int64_t after_id, unsigned limit,
                    int (*visit)(void *, const struct gb_session_view *, struct gb_error *), void *arg, bool *ret_more,
                    struct gb_error *err);

/* --- devices (pools: pool.h; streams, events: stream.h) --------------------------------------------------------------------------------------------- */

/* [now] Properties read at start; free_bytes as of the last housekeeping. DEVICE_NOT_FOUND. By index or UUID text. */
int gb_device_count(struct gb_core *core);
int gb_device_get(struct gb_core *core, int device, struct gb_device_rec *ret, struct gb_error *err);
int gb_device_find(struct gb_core *core, const char *index_or_uuid, int *ret_device, struct gb_error *err);
/* [now] The last reading of how the device is; its at_us says when that was. DEVICE_NOT_FOUND. */
int gb_device_health(struct gb_core *core, int device, struct gb_health *ret, struct gb_error *err);

/* --- buffers -------------------------------------------------------------------------------------------------------------- */

/* Zeroed memory under a new name. BUFFER_EXISTS, QUOTA_EXCEEDED, OUT_OF_MEMORY, LIMIT_REACHED, UNSUPPORTED kind.
 * bytes may be 0. wait_ms: how long to wait for memory to become free. Result: call->buffer. */
void gb_buffer_create(struct gb_core *core, const struct gb_buffer_params *params, unsigned wait_ms,
                      struct gb_buffer_call *call);
/* [now] */
int gb_buffer_get(struct gb_core *core, const struct gb_name *session, const struct gb_name *name,
                  struct gb_buffer_rec *ret, struct gb_error *err);
/* Labels; dtype and shape when they describe the same number of bytes (SHAPE_MISMATCH otherwise). */
void gb_buffer_patch(struct gb_core *core, const struct gb_buffer_params *params, const struct gb_buffer_check *check,
                     struct gb_buffer_call *call);
/* Readers of the bytes finish undisturbed. */
void gb_buffer_delete(struct gb_core *core, const struct gb_name *session, const struct gb_name *name,
                      const struct gb_buffer_check *check, struct gb_buffer_call *call);
/* [now] As gb_session_list. */
int gb_buffer_list(struct gb_core *core, const struct gb_name *session, int64_t after_id, unsigned limit,
                   int (*visit)(void *, const struct gb_buffer_rec *, struct gb_error *), void *arg, bool *ret_more,
                   struct gb_error *err);

/* --- transfers ------------------------------------------------------------------------------------------------------------ */

/* A transfer's functions are called by one thread at a time. Where one says "wait for wake", the wake may come before it
 * has returned, more than once, and for nothing: then ask again. wake must not block and must not take a lock that is held
 * while the transfer is freed. */

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
/* The client has nothing to give now: a slot that others wait for is let go, an empty one at once, one in part filled
 * when stalled, or when it has been filling for long. What room gave is void. */
void gb_upload_pause(struct gb_upload *upload, bool stalled);
/* All payload bytes are there: waits for the copies, commits, swaps. Result by gb_upload_result after wake. */
int gb_upload_end(struct gb_upload *upload, struct gb_error *err);
/* 1: done, outputs set; 0: not yet; -1: failed, the old bytes stand (state PARTIAL for in_place). */
int gb_upload_result(struct gb_upload *upload, struct gb_buffer_rec *ret_rec, bool *ret_created,
                     struct gb_transfer_times *ret_times, struct gb_error *err);
/* [now] As gb_call_cancel, once all bytes are there. */
bool gb_upload_cancel(struct gb_upload *upload, bool act);
/* Abandons what has not ended; safe at any time, NULL accepted, the rest is cleaned up behind. wake is not called after
 * this returns. */
void gb_upload_free(struct gb_upload *upload);
/* Why it is about to be abandoned, for the statistics; the first word counts. Without one the bytes ended too early. */
void gb_upload_blame(struct gb_upload *upload, enum gb_code why);

struct gb_download;

/* [now] Finds the buffer and holds its present bytes against replacement and deletion; touches no device. BUFFER_BUSY,
 * BUFFER_PARTIAL, CONTENT_LOST. */
int gb_download_open(struct gb_core *core, const struct gb_name *session, const struct gb_name *name,
                     const struct gb_name *stream, void (*wake)(void *arg), void *arg, struct gb_download **ret,
                     struct gb_error *err);
const struct gb_buffer_rec *gb_download_record(const struct gb_download *download);
/* Starts: [offset, offset + length) of the bytes. Once. RANGE_NOT_SATISFIABLE. */
int gb_download_start(struct gb_download *download, uint64_t offset, uint64_t length, struct gb_error *err);

int gb_download_start_view(struct gb_download *download, const struct gb_view *view, const struct gb_span *spans,
                           unsigned count, struct gb_error *err);
/* 1: *ret_n > 0 bytes at *ret_ptr, valid until gb_download_sent covers them; 0: wait for wake; -1. The copy of the next
 * block is in flight meanwhile. */
int gb_download_next(struct gb_download *download, const void **ret_ptr, size_t *ret_n, struct gb_error *err);
void gb_download_sent(struct gb_download *download, size_t n);
/* The client takes nothing now: blocks in slots that others wait for are let go and copied again later. What next gave is
 * void. */
void gb_download_pause(struct gb_download *download);
/* Times so far; complete once everything was given. */
void gb_download_times(const struct gb_download *download, struct gb_transfer_times *ret);
/* complete: every byte reached the client, for the counters. wake is not called after this returns. NULL accepted. */
void gb_download_free(struct gb_download *download, bool complete);

/* --- tokens ------------------------------------------------------------------------------------------------------------------ */

/* The tokens in force, replaced as a whole by whoever watches the database. Copies. [now] */
int gb_tokens_set(struct gb_core *core, const struct gb_token_rec *tokens, size_t count, struct gb_error *err);
/* True when at least one token is in force: then every request needs one. [now] */
bool gb_tokens_required(struct gb_core *core);
/* Which token it is: ids are given once. UNAUTHENTICATED when unknown. */
int gb_tokens_identify(struct gb_core *core, const char *secret, int64_t *ret_id, struct gb_error *err);
/* secret: what follows "Bearer ". UNAUTHENTICATED when unknown; FORBIDDEN when the scope is lower or the token is bound
 * to another session (session: "" for what belongs to none). [now] */
int gb_tokens_check(struct gb_core *core, const char *secret, enum gb_scope scope, const char *session,
                    struct gb_error *err);
/* The same for its own session, whichever that is; "" when it is bound to none. [now] */
int gb_tokens_session(struct gb_core *core, const char *secret, enum gb_scope scope, struct gb_name *ret_session,
                      struct gb_error *err);

#include "core/access/keys.h"
#include "core/buffer/transaction_batch.h"
#include "core/download/group.h"
#include "core/memory/alloc_log.h"
#include "core/observe/feed.h"
#include "core/observe/stats.h"
#include "core/ops/scan.h"
#include "core/share/adopt.h"
#include "core/share/lease.h"
#include "core/upload/device_write.h"
#include "core/upload/group.h"

#endif
