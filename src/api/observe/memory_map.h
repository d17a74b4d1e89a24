/* The layout of device memory: allocations, by segments in the order of addresses. */
#ifndef GB_API_OBSERVE_MEMORY_MAP_H
#define GB_API_OBSERVE_MEMORY_MAP_H

#include "core/core.h"

/* An allocation that exists now, or existed within the log of allocations. */
struct gb_map_span {
    uint64_t address;
    uint64_t bytes;
    uint64_t number; /* of the event that took it; 0: not taken any more */
    uint64_t event;  /* of the log, that tells of it; 0: none, it is there */
    bool took;       /* that event */
    int64_t owner;   /* the pool's id, or less than 0: a kind that has no pools */
    uint64_t stream;
    uint32_t session; /* where its name begins in names */
    uint32_t buffer;
    uint32_t pool;
    int device;
    bool leaving;
};

/* The owner of memory: a pool that lives, or lived within the log. */
struct gb_map_owner {
    int64_t owner;
    int device;
    uint64_t reserved;
    uint64_t spread; /* what its segments come to */
    bool gives_back; /* that exceeds what it has: some was given back, so each piece is a segment of its own */
    uint32_t name;   /* where it begins in names */
};

/* Addresses that one pool has or had, without a hole larger than GB_MAP_HOLE. A piece of a kind without pools, or of a
 * pool that gave memory back, is a segment of its own. CUDA does not tell which addresses a pool has reserved, so
 * unused memory at the ends is missing here. */
struct gb_segment {
    size_t first; /* of the spans */
    size_t count;
    uint64_t address;
    uint64_t bytes;
    uint64_t taken; /* of these */
    uint64_t leaving;
};
#define GB_MAP_HOLE (32u << 20)

struct gb_memory_map {
    struct gb_map_span *spans; /* by device and address; of those that are taken no two overlap */
    size_t span_count;
    size_t span_room;
    struct gb_segment *segments;
    size_t segment_count;
    char *names; /* the first is "" */
    size_t names_used;
    size_t names_room;
    struct gb_map_owner *owners;
    size_t owner_count;
    size_t owner_room;
    uint64_t events_from; /* of the log that belongs to it */
    uint64_t events_end;
};

/* Reads the map with the last `events` of the log. Takes a while: not on an HTTP loop. Returns 0, or -1 when memory is
 * exhausted. */
int gb_memory_map_read(struct gb_core *core, uint64_t events, struct gb_memory_map *ret, struct gb_error *err);
/* Tells whether each piece of that owner is a segment of its own. */
bool gb_memory_map_single(const struct gb_memory_map *map, int device, enum gb_kind kind, int64_t pool_id);
/* Returns the name of the pool or kind. */
const char *gb_memory_map_name(const struct gb_memory_map *map, const struct gb_segment *segment);
void gb_memory_map_done(struct gb_memory_map *map);

#endif
