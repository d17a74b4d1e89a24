/* A hash map from strings to pointers. Not thread-safe; keys are borrowed and live inside the values. */
#ifndef GB_BASE_MAP_H
#define GB_BASE_MAP_H

#include <stddef.h>
#include <stdint.h>

struct gb_map_slot {
    const char *key; /* NULL: empty; value NULL with a key: deleted */
    void *value;
    uint32_t hash;
};

/* Zero-initialised is empty. */
struct gb_map {
    struct gb_map_slot *slots;
    size_t capacity; /* power of two or zero */
    size_t count;
    size_t filled; /* count and deleted */
};

void gb_map_done(struct gb_map *map);

/* Returns the value, or NULL if the map does not have the key. */
void *gb_map_get(const struct gb_map *map, const char *key);

/* Adds or replaces. The key must stay valid and unchanged while it is in the map. Returns 0, or -1 if memory is
 * exhausted, with the map unchanged. */
int gb_map_put(struct gb_map *map, const char *key, void *value);

/* Removes the key. Returns its value, or NULL if the map does not have it. */
void *gb_map_take(struct gb_map *map, const char *key);

/* Walks the map, beginning with *at = 0. Returns NULL at the end. The map may not change meanwhile, except that the
 * value just returned may be taken. */
void *gb_map_next(const struct gb_map *map, size_t *at);

/* The hash of a text. */
uint32_t gb_map_hash(const char *key);

#endif
