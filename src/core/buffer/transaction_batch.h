/* Changes of many calls, committed as one: each call that has the same gather does its work, and the changes wait until all
 * are there. Comes with core.h. */
#ifndef GB_CORE_GATHER_H
#define GB_CORE_GATHER_H

struct gb_gather;

/* For so many calls, of one session, each changing another buffer; calls that make buffers may not be among them. atomic:
 * when one fails, all do, and nothing is changed. Else those that can are carried out, in one transaction unless the
 * database or a decision refuses one of them. mark: committed with them; may be NULL. NULL when memory is exhausted. */
struct gb_gather *gb_gather_new(size_t calls, bool atomic, const struct gb_store_mark *mark);
bool gb_gather_atomic(const struct gb_gather *gather); /* NULL: no */
struct gb_gather *gb_gather_ref(struct gb_gather *gather);
/* So many of the calls will never be made. */
void gb_gather_skip(struct gb_gather *gather, size_t calls);
void gb_gather_unref(struct gb_gather *gather); /* NULL is accepted */

#endif
