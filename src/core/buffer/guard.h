/* Checks against pins, seals and owners of adopted memory. The session's lock is held in all of these. */
#ifndef GB_CORE_BUFFER_GUARD_H
#define GB_CORE_BUFFER_GUARD_H

#include "core/buffer/buffer.h"

/* MAPPED, naming the lease and what to do instead, if other processes map the buffer's bytes. */
int gb_guard_check_unmapped_locked(const struct gb_buffer *buffer, const char *instead, struct gb_error *err);

/* All pins on content belong to that holder. */
bool gb_guard_mapped_by_locked(const struct gb_content *content, uint64_t holder);

/* SEALED. */
int gb_guard_check_unsealed_locked(const struct gb_buffer *buffer, struct gb_error *err);

/* MAPPED if a process maps the bytes for writing; ESCAPED if a process may write on after its lease has ended. */
int gb_guard_check_writers_locked(const struct gb_buffer *buffer, struct gb_error *err);

/* The bytes are complete, in memory or on disk, and no write is under way: BUFFER_BUSY, BUFFER_PARTIAL, CONTENT_LOST,
 * or as gb_guard_check_writers_locked. adopted: what cannot be done with adopted memory and what to do instead, as in
 * gb_adopted_check_locked. */
int gb_guard_check_settled_locked(const struct gb_buffer *buffer, const char *adopted, struct gb_error *err);

/* MAPPED while any lease of the session lives. */
int gb_guard_check_session_locked(const struct gb_session *session, struct gb_error *err);

/* How many bytes of the buffer leases would hold after its deletion. */
uint64_t gb_guard_mapped_bytes_locked(const struct gb_buffer *buffer);

/* Writes into the buffer's record how many leases it has, and whether a process may be writing. */
void gb_guard_count_locked(struct gb_buffer *buffer);
/* The same into another record of it, what memory the sides have, and whether one of them is adopted. */
void gb_guard_tell_locked(const struct gb_buffer *buffer, struct gb_buffer_rec *ret);

/* ADOPTED, naming what cannot be done with such a buffer and what to do instead; 0 for any other buffer. */
int gb_adopted_check_locked(const struct gb_buffer *buffer, const char *what, struct gb_error *err);

/* Sets CONTENT_LOST, with the way in which the buffer lost its bytes. Returns -1. */
int gb_lost(const struct gb_buffer *buffer, struct gb_error *err);

#endif
