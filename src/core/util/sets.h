/* Lists by id, and sets of ranges of bytes. Not thread-safe: their owners have the locks. */
#ifndef GB_CORE_UTIL_SETS_H
#define GB_CORE_UTIL_SETS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/public/types.h"

/* Pointers in the order of their ids. Not thread-safe. */

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

/* Which bytes of a whole have arrived, with their checksums: pieces in order that do not overlap. Not thread-safe. */

struct gb_piece {
    uint64_t at;
    uint64_t end;
    uint32_t crc;
};

/* Zero-initialised is empty. */
struct gb_ranges {
    struct gb_piece *pieces;
    size_t count;
    size_t capacity;
    uint64_t bytes; /* in all pieces */
};

void gb_ranges_done(struct gb_ranges *ranges);

/* Makes room for count pieces in all, so that adding them cannot fail. Returns 0, or -1 when memory is exhausted. */
int gb_ranges_reserve(struct gb_ranges *ranges, size_t count);

/* Adds a piece that overlaps none; there is room for one more. join: the piece becomes one with the piece that ends
 * where it begins, if there is one. No bytes: nothing happens. */
void gb_ranges_add(struct gb_ranges *ranges, uint64_t at, uint64_t bytes, uint32_t crc, bool join);

/* Takes out the pieces within [at, at + bytes). False, with nothing changed, if that would cut a piece in two: a part
 * of a piece has no checksum. */
bool gb_ranges_take(struct gb_ranges *ranges, uint64_t at, uint64_t bytes);

/* Does a piece lie in [at, at + bytes), in part or as a whole? */
bool gb_ranges_meet(const struct gb_ranges *ranges, uint64_t at, uint64_t bytes);

/* Is [at, at + bytes) made of whole pieces? Then *ret_crc is its checksum. */
bool gb_ranges_cover(const struct gb_ranges *ranges, uint64_t at, uint64_t bytes, uint32_t *ret_crc);

/* How many bytes have arrived from 0 on without a gap. */
uint64_t gb_ranges_prefix(const struct gb_ranges *ranges);

/* The gaps in [0, total): the first max of them into ret. Returns how many there are. */
size_t gb_ranges_missing(const struct gb_ranges *ranges, uint64_t total, struct gb_gap *ret, size_t max);

/* The checksum of all, when nothing is missing. */
uint32_t gb_ranges_crc(const struct gb_ranges *ranges);

#endif
