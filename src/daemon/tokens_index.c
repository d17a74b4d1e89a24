#include "daemon/tokens_index.h"

#include <stdlib.h>

int gb_token_array_reserve(struct gb_token_array *array, size_t capacity, struct gb_error *err) {
    struct gb_token_rec *items;

    if (capacity <= array->capacity)
        return 0;
    items = realloc(array->items, capacity * sizeof *items);
    if (!items)
        return gb_error_set(err, GB_ERR_INTERNAL, "out of memory while reading tokens");
    array->items = items;
    array->capacity = capacity;
    return 0;
}

int gb_token_array_add(struct gb_token_array *array, const struct gb_token_rec *rec, struct gb_error *err) {
    size_t more = array->capacity > 0 ? 2 * array->capacity : 16;

    if (array->count == array->capacity && gb_token_array_reserve(array, more, err) != 0)
        return -1;
    array->items[array->count++] = *rec;
    return 0;
}

/* --- the index ---------------------------------------------------------------------------------------------------- */

static int put(struct gb_map *map, const char *key, struct gb_token_rec *rec, struct gb_error *err) {
    if (key[0] == '\0' || gb_map_put(map, key, rec) == 0)
        return 0;
    return gb_error_set(err, GB_ERR_INTERNAL, "out of memory while reading tokens");
}

int gb_tokens_index_add(struct gb_tokens_index *index, struct gb_token_rec *rec, struct gb_error *err) {
    if (put(&index->names, rec->name.s, rec, err) != 0 || put(&index->secrets, rec->sha256_hex, rec, err) != 0 ||
        put(&index->secrets, rec->old_sha256_hex, rec, err) != 0)
        return -1;
    return put(&index->subjects, rec->subject, rec, err);
}

int gb_tokens_index_add_all(struct gb_tokens_index *index, const struct gb_token_array *array, struct gb_error *err) {
    size_t i;

    for (i = 0; i < array->count; i++) {
        if (gb_tokens_index_add(index, &array->items[i], err) != 0)
            return -1;
    }
    return 0;
}

/* No token is known by "". */
const struct gb_token_rec *gb_tokens_index_find(const struct gb_tokens_index *index, const struct gb_token_rec *rec,
                                                const char **ret_same) {
    const struct gb_token_rec *found = gb_map_get(&index->names, rec->name.s);

    if (found) {
        *ret_same = "name";
        return found;
    }
    found = gb_map_get(&index->secrets, rec->sha256_hex);
    if (!found)
        found = gb_map_get(&index->secrets, rec->old_sha256_hex);
    if (found) {
        *ret_same = "secret";
        return found;
    }
    found = gb_map_get(&index->subjects, rec->subject);
    if (found)
        *ret_same = "subject";
    return found;
}

const struct gb_token_rec *gb_tokens_index_named(const struct gb_tokens_index *index, const char *name) {
    return gb_map_get(&index->names, name);
}

void gb_tokens_index_done(struct gb_tokens_index *index) {
    gb_map_done(&index->names);
    gb_map_done(&index->secrets);
    gb_map_done(&index->subjects);
}
