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

/* Adds a value whose id is not in the list. It is cheap at the end, where new ids go. Returns 0, or -1 if memory is
 * exhausted. */
int gb_idlist_put(struct gb_idlist *list, int64_t id, void *value);

/* Removes the id, if the list has it. */
void gb_idlist_take(struct gb_idlist *list, int64_t id);

/* The value with the next higher id, or NULL. *ret_id, unless ret_id is NULL, is that id. */
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

/* Makes room for count pieces in all, so that adding them cannot fail. Returns 0, or -1 if memory is exhausted. */
int gb_ranges_reserve(struct gb_ranges *ranges, size_t count);

/* Adds a piece that overlaps no other; room for it is reserved. join: if another piece ends where this one begins, both
 * become one. A piece of no bytes is ignored. */
void gb_ranges_add(struct gb_ranges *ranges, uint64_t at, uint64_t bytes, uint32_t crc, bool join);

/* Takes out the pieces within [at, at + bytes). Returns false, with nothing changed, if that would cut a piece in two,
 * because a part of a piece has no checksum. */
bool gb_ranges_take(struct gb_ranges *ranges, uint64_t at, uint64_t bytes);

/* Returns true if a piece lies in [at, at + bytes), in part or as a whole. */
bool gb_ranges_meet(const struct gb_ranges *ranges, uint64_t at, uint64_t bytes);

/* Returns true if [at, at + bytes) is made of whole pieces; *ret_crc is its checksum then. */
bool gb_ranges_cover(const struct gb_ranges *ranges, uint64_t at, uint64_t bytes, uint32_t *ret_crc);

/* The number of bytes that have arrived from 0 on without a gap. */
uint64_t gb_ranges_prefix(const struct gb_ranges *ranges);

/* Writes the first max gaps in [0, total) to ret. Returns the number of all gaps. */
size_t gb_ranges_missing(const struct gb_ranges *ranges, uint64_t total, struct gb_gap *ret, size_t max);

/* The checksum of all bytes, if none is missing. */
uint32_t gb_ranges_crc(const struct gb_ranges *ranges);

#endif
