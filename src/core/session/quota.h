/* What a session may hold, reserved and given back under the session's lock; and notices about a session. */
#ifndef GB_CORE_SESSION_QUOTA_H
#define GB_CORE_SESSION_QUOTA_H

#include "core/runtime/runtime.h"
#include "core/session/session.h"
#include "model/model.h"

/* Returns 0 if that many more bytes and buffers fit, also if only after other buffers have left memory; else -1 with
 * QUOTA_EXCEEDED or LIMIT_REACHED. tell: posts the refusal to the feed. The caller counts it by gb_quota_denied. */
int gb_quota_check_locked(struct gb_session *session, uint64_t bytes, uint64_t count, bool tell, struct gb_error *err);
/* Counts a refusal by a limit of the session or the daemon; no device was called. */
void gb_quota_denied(struct gb_session *session, const struct gb_error *why);

/* Reserves bytes and count, or neither; a refusal is counted. */
int gb_quota_take_locked(struct gb_session *session, uint64_t bytes, uint64_t count, struct gb_error *err);
void gb_quota_give_locked(struct gb_session *session, uint64_t bytes, uint64_t count);

/* Returns true if the bytes do not fit now, but would if other buffers of the session left memory, which they may. */
bool gb_quota_promise_locked(struct gb_session *session, uint64_t bytes);
/* Reserves the bytes if they fit; a refusal is not counted. */
int gb_quota_redeem_locked(struct gb_session *session, uint64_t bytes, struct gb_error *err);

/* As gb_quota_check_locked, for bytes on disk. Errors: QUOTA_EXCEEDED. */
int gb_quota_check_stored_locked(struct gb_session *session, uint64_t bytes, bool tell, struct gb_error *err);
int gb_quota_take_stored_locked(struct gb_session *session, uint64_t bytes, struct gb_error *err);
void gb_quota_give_stored_locked(struct gb_session *session, uint64_t bytes);

/* Appended to PINNED_LIMIT if the client chose the kind. */
#define GB_QUOTA_OTHER_KIND ", or use kind \"pageable\""

/* The same for page-locked host memory, which counts among all bytes, and against the machine's ceiling
 * (util/staging.h), too. QUOTA_EXCEEDED, PINNED_LIMIT. */
int gb_quota_check_pinned_locked(struct gb_session *session, uint64_t bytes, bool tell, struct gb_error *err);
int gb_quota_take_pinned_locked(struct gb_session *session, uint64_t bytes, struct gb_error *err);
void gb_quota_give_pinned_locked(struct gb_session *session, uint64_t bytes);

/* Notices about a session, its pools and buffers. Threads and locks as core/runtime/runtime.h. */

struct gb_core_pool;
struct gb_session;

/* As gb_notice_new, with the session's name. */
struct gb_notice gb_notice_of(const struct gb_session *session, enum gb_notice_type type);
struct gb_notice gb_notice_of_buffer(struct gb_session *session, const struct gb_buffer_rec *rec,
                                     enum gb_notice_type type);

void gb_notice_post_session(struct gb_session *session, enum gb_notice_type type);
void gb_notice_post_pool(struct gb_session *session, const struct gb_core_pool *pool, enum gb_notice_type type);

/* Buffers that lost their bytes, and why. A count of 0 posts nothing. */
void gb_notice_post_lost(struct gb_session *session, uint64_t count, const char *why);

#endif
