/* Notices about a session, its pools and buffers. Threads and locks as core/runtime/notices.h. */
#ifndef GB_CORE_SESSION_NOTICES_H
#define GB_CORE_SESSION_NOTICES_H

#include "core/runtime/notices.h"
#include "model/model.h"

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
