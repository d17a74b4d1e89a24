/* The holds of streams, as the core keeps them. */
#ifndef GB_CORE_SESSION_SYNC_H
#define GB_CORE_SESSION_SYNC_H

struct gb_holds;

/* NULL when memory is exhausted. */
struct gb_holds *gb_holds_new(void);

/* After gb_holds_release and the last lane. NULL is accepted. */
void gb_holds_free(struct gb_holds *holds);

#endif
