#include "api/list/best.h"

#include <stdlib.h>
#include <string.h>

int gb_best_init(struct gb_best *best, size_t keep, bool down, struct gb_error *err) {
    *best = (struct gb_best){.keep = keep, .down = down, .items = malloc(2 * keep * sizeof(*best->items))};
    return best->items ? 0 : gb_error_set(err, GB_ERR_SATURATED, "no memory to sort the list; try again later");
}

void gb_best_done(struct gb_best *best) {
    free(best->items);
    best->items = NULL;
}

int gb_list_place_compare(const struct gb_list_place *a, const struct gb_list_place *b, bool down) {
    int order = a->number < b->number ? -1 : a->number > b->number;

    if (order == 0)
        order = strcmp(a->name.s, b->name.s);
    return down ? -order : order;
}

static int rising(const void *a, const void *b) {
    return gb_list_place_compare(&((const struct gb_best_item *)a)->place, &((const struct gb_best_item *)b)->place,
                                 false);
}

static int falling(const void *a, const void *b) {
    return rising(b, a);
}

void gb_best_end(struct gb_best *best) {
    if (best->count > 0) /* else there may be no array */
        qsort(best->items, best->count, sizeof(*best->items), best->down ? falling : rising);
    if (best->count > best->keep)
        best->count = best->keep;
}

void gb_best_offer(struct gb_best *best, const struct gb_list_place *place, int64_t id) {
    if (best->full && gb_list_place_compare(place, &best->worst, best->down) >= 0)
        return;
    best->items[best->count++] = (struct gb_best_item){.place = *place, .id = id};
    if (best->count < 2 * best->keep)
        return;
    gb_best_end(best);
    best->worst = best->items[best->count - 1].place;
    best->full = true;
}
