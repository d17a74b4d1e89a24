/* A hash map from strings to pointers, with open addressing. The owner's lock guards it, and the keys live in the
 * values. */
#include "base/map.h"

#include <stdlib.h>
#include <string.h>

static const char deleted[] = "";

uint32_t gb_map_hash(const char *key) {
    uint32_t h = 2166136261u;

    for (; *key; key++)
        h = (h ^ (unsigned char)*key) * 16777619u;
    return h ^ (h >> 15);
}

void gb_map_done(struct gb_map *map) {
    free(map->slots);
    *map = (struct gb_map){0};
}

/* The slot that holds key, or NULL. */
static struct gb_map_slot *find(const struct gb_map *map, const char *key) {
    uint32_t h = gb_map_hash(key);
    size_t i;

    if (map->capacity == 0)
        return NULL;
    for (i = h & (map->capacity - 1); map->slots[i].key; i = (i + 1) & (map->capacity - 1)) {
        struct gb_map_slot *s = &map->slots[i];

        if (s->key != deleted && s->hash == h && strcmp(s->key, key) == 0)
            return s;
    }
    return NULL;
}

static void insert_new(struct gb_map *map, const char *key, uint32_t h, void *value) {
    size_t i = h & (map->capacity - 1);

    while (map->slots[i].key)
        i = (i + 1) & (map->capacity - 1);
    map->slots[i] = (struct gb_map_slot){.key = key, .value = value, .hash = h};
    map->count++;
    map->filled++;
}

static int grow(struct gb_map *map) {
    struct gb_map bigger = {.capacity = 16};
    size_t i;

    while (bigger.capacity < map->count * 4)
        bigger.capacity *= 2;
    bigger.slots = calloc(bigger.capacity, sizeof(*bigger.slots));
    if (!bigger.slots)
        return -1;
    for (i = 0; i < map->capacity; i++) {
        struct gb_map_slot *s = &map->slots[i];

        if (s->key && s->key != deleted)
            insert_new(&bigger, s->key, s->hash, s->value);
    }
    free(map->slots);
    *map = bigger;
    return 0;
}

void *gb_map_get(const struct gb_map *map, const char *key) {
    struct gb_map_slot *s = find(map, key);

    return s ? s->value : NULL;
}

int gb_map_put(struct gb_map *map, const char *key, void *value) {
    struct gb_map_slot *s = find(map, key);

    if (s) {
        s->key = key;
        s->value = value;
        return 0;
    }
    if ((map->filled + 1) * 4 > map->capacity * 3 && grow(map) < 0)
        return -1;
    insert_new(map, key, gb_map_hash(key), value);
    return 0;
}

void *gb_map_take(struct gb_map *map, const char *key) {
    struct gb_map_slot *s = find(map, key);
    void *value;

    if (!s)
        return NULL;
    value = s->value;
    s->key = deleted;
    s->value = NULL;
    map->count--;
    return value;
}

void *gb_map_next(const struct gb_map *map, size_t *at) {
    while (*at < map->capacity) {
        struct gb_map_slot *s = &map->slots[(*at)++];

        if (s->key && s->key != deleted)
            return s->value;
    }
    return NULL;
}
