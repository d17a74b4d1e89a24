/* The tie between a content and the process that owns its memory. */
#ifndef GB_CORE_SHARE_ADOPT_H
#define GB_CORE_SHARE_ADOPT_H

#include <stdatomic.h>
#include <sys/queue.h>

#include "core/share/lease.h"

/* Lives from before the import until after its end. */
struct gb_adoption {
    atomic_uint refs; /* its life's, and the holder's list's */
    struct gb_core *core;
    struct gb_holder *holder;   /* a reference */
    struct gb_session *session; /* a reference */
    struct gb_name buffer;
    uint64_t host_bytes; /* of the CPU's memory that is mapped; 0: a device's */
    bool cut;            /* the owner has ended; the session's lock */

    /* The table's lock: */
    bool listed; /* in its holder's list */
    TAILQ_ENTRY(gb_adoption) of_holder;
};

/* The holder has ended: all its buffers are lost. Without locks. */
void gb_adoptions_end(struct gb_holder *holder);

#endif
