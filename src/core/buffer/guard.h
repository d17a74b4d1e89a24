/* What leases forbid. The session's lock is held in all of these. */
#ifndef GB_CORE_BUFFER_GUARD_H
#define GB_CORE_BUFFER_GUARD_H

#include "core/buffer/buffer.h"

/* MAPPED, with who it is and what to do instead, when other processes map the buffer's bytes. */
int gb_guard_check_unmapped_locked(const struct gb_buffer *buffer, const char *instead, struct gb_error *err);

/* All leases on content are that holder's. */
bool gb_guard_mapped_by_locked(const struct gb_content *content, uint64_t holder);

/* SEALED. */
int gb_guard_check_unsealed_locked(const struct gb_buffer *buffer, struct gb_error *err);

/* MAPPED when a process maps them for writing, ESCAPED when one may write on whose lease has ended. */
int gb_guard_check_writers_locked(const struct gb_buffer *buffer, struct gb_error *err);

/* MAPPED when any lease of the session lives. */
int gb_guard_check_session_locked(const struct gb_session *session, struct gb_error *err);

/* How many bytes of the buffer would be held by leases when it is gone. */
uint64_t gb_guard_mapped_bytes_locked(const struct gb_buffer *buffer);

/* Puts the number of leases, and whether somebody may be writing, into the buffer's record. */
void gb_guard_count_locked(struct gb_buffer *buffer);
/* The same into another record of it. */
void gb_guard_tell_locked(const struct gb_buffer *buffer, struct gb_buffer_rec *ret);

/* ADOPTED with what is not to be had of such a buffer and what to do instead; 0 for any other. The session's lock is held. */
int gb_adopted_check_locked(const struct gb_buffer *buffer, const char *what, struct gb_error *err);

/* CONTENT_LOST of a buffer in that state, with how it came to it. Returns -1. */
int gb_lost(const struct gb_buffer *buffer, struct gb_error *err);

#endif
