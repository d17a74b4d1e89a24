#include "core/util/range_set.h"

#include <stdlib.h>
#include <string.h>

#include "base/hash.h"

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
