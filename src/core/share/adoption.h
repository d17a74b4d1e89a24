/* What ties a content to the process that owns its memory, for the files of adopted memory and those that ask whether it is. */
#ifndef GB_CORE_SHARE_ADOPTION_H
#define GB_CORE_SHARE_ADOPTION_H

#include <stdatomic.h>
#include <sys/queue.h>

#include "core/share/lease_internal.h"

/* From before the memory is imported until it has been given back. */
struct gb_adoption {
    atomic_uint refs; /* its life's, and the holder's list's */
    struct gb_core *core;
    struct gb_holder *holder;   /* a reference */
    struct gb_session *session; /* a reference */
    struct gb_name buffer;
    uint64_t host_bytes; /* of the CPU's memory that is mapped; 0: a device's */
    bool cut;            /* the owner has gone; the session's lock */

    /* The table's lock: */
    bool listed; /* in its holder's list */
    TAILQ_ENTRY(gb_adoption) of_holder;
};

/* Into its holder's list. host_bytes: of the CPU's memory that is to be mapped. LIMIT_REACHED, CANCELLED. The session's lock
 * is held. */
int gb_adoption_new_locked(struct gb_session *session, struct gb_holder *holder, const struct gb_name *buffer,
                           uint64_t host_bytes, struct gb_adoption **ret, struct gb_error *err);

/* The memory has been given back, or was never had. Frees it. Without locks; NULL is accepted. */
void gb_adoption_over(struct gb_adoption *adoption);

/* The holder has ended: all its buffers are lost. Without locks. */
void gb_adoptions_end(struct gb_holder *holder);

/* ADOPTED with what is not to be had of such a buffer and what to do instead; 0 for any other. The session's lock is held. */
int gb_adopted_check_locked(const struct gb_buffer *buffer, const char *what, struct gb_error *err);

/* CONTENT_LOST of a buffer in that state, with how it came to it. Returns -1. */
int gb_lost(const struct gb_buffer *buffer, struct gb_error *err);

#endif
