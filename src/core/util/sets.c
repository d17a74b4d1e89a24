/* Lists by id, and sets of ranges of bytes. Functions work on their arguments alone, and the owners have the locks:
 * sessions, checkpoints and multipart uploads. */
#include "core/util/sets.h"

#include <stdlib.h>
#include <string.h>

#include "base/hash.h"

/* --- idlist ------------------------------------------------------------------------------------------------------- */

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

/* --- range set ---------------------------------------------------------------------------------------------------- */

void gb_ranges_done(struct gb_ranges *r) {
    free(r->pieces);
    *r = (struct gb_ranges){0};
}

int gb_ranges_reserve(struct gb_ranges *r, size_t count) {
    size_t capacity = r->capacity ? r->capacity : 4;
    struct gb_piece *pieces;

    if (count <= r->capacity)
        return 0;
    while (capacity < count)
        capacity *= 2;
    pieces = realloc(r->pieces, capacity * sizeof(*pieces));
    if (!pieces)
        return -1;
    r->pieces = pieces;
    r->capacity = capacity;
    return 0;
}

/* The first piece that ends behind at. */
static size_t find(const struct gb_ranges *r, uint64_t at) {
    size_t low = 0;
    size_t high = r->count;

    while (low < high) {
        size_t middle = low + (high - low) / 2;

        if (r->pieces[middle].end <= at)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

void gb_ranges_add(struct gb_ranges *r, uint64_t at, uint64_t bytes, uint32_t crc, bool join) {
    size_t i = find(r, at);

    if (bytes == 0)
        return;
    r->bytes += bytes;
    if (join && i > 0 && r->pieces[i - 1].end == at) {
        r->pieces[i - 1].end = at + bytes;
        r->pieces[i - 1].crc = gb_crc32c_join(r->pieces[i - 1].crc, crc, bytes);
        return;
    }
    memmove(r->pieces + i + 1, r->pieces + i, (r->count - i) * sizeof(*r->pieces));
    r->pieces[i] = (struct gb_piece){.at = at, .end = at + bytes, .crc = crc};
    r->count++;
}

bool gb_ranges_take(struct gb_ranges *r, uint64_t at, uint64_t bytes) {
    size_t first = find(r, at);
    uint64_t end = at + bytes;
    uint64_t taken = 0;
    size_t i;

    for (i = first; i < r->count && r->pieces[i].at < end; i++) {
        if (r->pieces[i].at < at || r->pieces[i].end > end)
            return false;
        taken += r->pieces[i].end - r->pieces[i].at;
    }
    if (i == first)
        return true;
    memmove(r->pieces + first, r->pieces + i, (r->count - i) * sizeof(*r->pieces));
    r->count -= i - first;
    r->bytes -= taken;
    return true;
}

bool gb_ranges_meet(const struct gb_ranges *r, uint64_t at, uint64_t bytes) {
    size_t i = find(r, at);

    return i < r->count && r->pieces[i].at < at + bytes;
}

bool gb_ranges_cover(const struct gb_ranges *r, uint64_t at, uint64_t bytes, uint32_t *ret_crc) {
    uint64_t end = at;
    uint32_t crc = 0;
    size_t i;

    for (i = find(r, at); i < r->count && end < at + bytes && r->pieces[i].at == end; i++) {
        crc = gb_crc32c_join(crc, r->pieces[i].crc, r->pieces[i].end - end);
        end = r->pieces[i].end;
    }
    *ret_crc = crc;
    return end == at + bytes;
}

uint64_t gb_ranges_prefix(const struct gb_ranges *r) {
    uint64_t end = 0;
    size_t i;

    for (i = 0; i < r->count && r->pieces[i].at == end; i++)
        end = r->pieces[i].end;
    return end;
}

size_t gb_ranges_missing(const struct gb_ranges *r, uint64_t total, struct gb_gap *ret, size_t max) {
    uint64_t end = 0;
    size_t gaps = 0;
    size_t i;

    for (i = 0; i <= r->count; i++) {
        uint64_t next = i < r->count ? r->pieces[i].at : total;

        if (next > end) {
            if (gaps < max)
                ret[gaps] = (struct gb_gap){.offset = end, .bytes = next - end};
            gaps++;
        }
        if (i < r->count)
            end = r->pieces[i].end;
    }
    return gaps;
}

uint32_t gb_ranges_crc(const struct gb_ranges *r) {
    uint32_t crc = 0;
    size_t i;

    for (i = 0; i < r->count; i++)
        crc = gb_crc32c_join(crc, r->pieces[i].crc, r->pieces[i].end - r->pieces[i].at);
    return crc;
}
