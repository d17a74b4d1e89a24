#include "core/util/idlist.h"

#include <stdlib.h>
#include <string.h>

void gb_idlist_done(struct gb_idlist *list) {
    free(list->items);
    *list = (struct gb_idlist){0};
}

/* The index of the first item with an id above. */
static size_t above(const struct gb_idlist *list, int64_t id) {
    size_t low = 0;
    size_t high = list->count;

    while (low < high) {
        size_t mid = low + (high - low) / 2;

        if (list->items[mid].id <= id)
            low = mid + 1;
        else
            high = mid;
    }
    return low;
}

int gb_idlist_put(struct gb_idlist *list, int64_t id, void *value) {
    size_t at = above(list, id);

    if (list->count == list->capacity) {
        size_t capacity = list->capacity ? list->capacity * 2 : 16;
        struct gb_idlist_item *items = realloc(list->items, capacity * sizeof(*items));

        if (!items)
            return -1;
        list->items = items;
        list->capacity = capacity;
    }
    memmove(&list->items[at + 1], &list->items[at], (list->count - at) * sizeof(list->items[0]));
    list->items[at] = (struct gb_idlist_item){.id = id, .value = value};
    list->count++;
    return 0;
}

void gb_idlist_take(struct gb_idlist *list, int64_t id) {
    size_t end = above(list, id);

    if (end == 0 || list->items[end - 1].id != id)
        return;
    memmove(&list->items[end - 1], &list->items[end], (list->count - end) * sizeof(list->items[0]));
    list->count--;
}

void *gb_idlist_after(const struct gb_idlist *list, int64_t id, int64_t *ret_id) {
    size_t at = above(list, id);

    if (at == list->count)
        return NULL;
    if (ret_id)
        *ret_id = list->items[at].id;
    return list->items[at].value;
}
