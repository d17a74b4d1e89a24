/* Buffers whose latest bytes came in one change and are not on disk yet: they go there in one commit, so that a crash
 * leaves the bytes of all or of none. Those of two changes that share a buffer go together too: its bytes are of both.
 * The session's lock is held in all of these. */
#ifndef GB_CORE_BUFFER_TOGETHER_H
#define GB_CORE_BUFFER_TOGETHER_H

#include "core/buffer/buffer.h"

/* Two or more, linked by gb_buffer.together_next; fewer only while it is being made. */
struct gb_together {
    struct gb_buffer *first; /* has been behind for as long as any, unless one has left */
    struct gb_buffer *last;
    size_t count;
};

/* Adds the buffer, and those that it is together with already. *at may be another one then. */
void gb_together_join(struct gb_together **at, struct gb_buffer *buffer);

/* No more of them join: fewer than two are together with nothing. NULL is accepted. */
void gb_together_settle(struct gb_together *together);

/* The bytes are on disk, or there are none of the buffer any more. One that is alone is accepted. */
void gb_together_leave(struct gb_buffer *buffer);

/* The one of them for which all are stored, or the buffer itself. Those that cannot be stored hold up no others: they
 * leave. */
struct gb_buffer *gb_together_leader(struct gb_buffer *buffer);

/* False: the bytes are lost, incomplete, or a process may be writing them; that may last. */
bool gb_together_can_be_stored(const struct gb_buffer *buffer);

#endif
