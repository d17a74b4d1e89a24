/* Pointers in the order of their ids. Not thread-safe. */
#ifndef GB_CORE_UTIL_IDLIST_H
#define GB_CORE_UTIL_IDLIST_H

#include <stddef.h>
#include <stdint.h>

struct gb_idlist_item {
    int64_t id;
    void *value;
};

/* Zero-initialised is empty. */
struct gb_idlist {
    struct gb_idlist_item *items;
    size_t count;
    size_t capacity;
};

void gb_idlist_done(struct gb_idlist *list);

/* Adds; the id is not there yet. Cheap at the end, where new ids go. Returns 0, or -1 when memory is exhausted. */
int gb_idlist_put(struct gb_idlist *list, int64_t id, void *value);

/* Removes; nothing happens when it is absent. */
void gb_idlist_take(struct gb_idlist *list, int64_t id);

/* The first with a higher id; NULL when there is none. *ret_id (may be NULL) is its id. */
void *gb_idlist_after(const struct gb_idlist *list, int64_t id, int64_t *ret_id);

#endif
