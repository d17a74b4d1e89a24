/* The first items of a sorted list, of any number that pass by. */
#ifndef GB_API_LIST_BEST_H
#define GB_API_LIST_BEST_H

#include <stddef.h>

#include "api/list/cursor.h"

struct gb_best_item {
    struct gb_list_place place;
    int64_t id;
};

/* Memory for twice as many as are kept: when it is full, the worse half goes. */
struct gb_best {
    struct gb_best_item *items;
    size_t count;
    size_t keep;
    bool down;
    bool full; /* `worst` is the last of those that were kept */
    struct gb_list_place worst;
};

/* Returns 0, or -1 with SATURATED when memory is exhausted. Zero-initialised is done already. */
int gb_best_init(struct gb_best *best, size_t keep, bool down, struct gb_error *err);
void gb_best_done(struct gb_best *best);

/* Whether a comes before b (< 0) in that order. Names decide between equal numbers. */
int gb_list_place_compare(const struct gb_list_place *a, const struct gb_list_place *b, bool down);

void gb_best_offer(struct gb_best *best, const struct gb_list_place *place, int64_t id);
/* Sorts; count is at most keep then. */
void gb_best_end(struct gb_best *best);

#endif
