/* Tokens in a list, and found by what one token alone may have. */
#ifndef GB_DAEMON_TOKENS_INDEX_H
#define GB_DAEMON_TOKENS_INDEX_H

#include <stddef.h>

#include "base/error.h"
#include "base/map.h"
#include "model/model.h"

/* Zero-initialised is empty; free(items) ends it. */
struct gb_token_array {
    struct gb_token_rec *items;
    size_t count;
    size_t capacity;
};

/* Room for so many in all: until there are more, the items stay where they are. */
int gb_token_array_reserve(struct gb_token_array *array, size_t capacity, struct gb_error *err);
int gb_token_array_add(struct gb_token_array *array, const struct gb_token_rec *rec, struct gb_error *err);

/* Zero-initialised is empty. The tokens are borrowed, and must not move. */
struct gb_tokens_index {
    struct gb_map names;
    struct gb_map secrets; /* by their hashes, former ones too */
    struct gb_map subjects;
};

int gb_tokens_index_add(struct gb_tokens_index *index, struct gb_token_rec *rec, struct gb_error *err);
int gb_tokens_index_add_all(struct gb_tokens_index *index, const struct gb_token_array *array, struct gb_error *err);
/* A token that has what rec has, too; NULL: none. *ret_same: "name", "secret" or "subject"; written when found. */
const struct gb_token_rec *gb_tokens_index_find(const struct gb_tokens_index *index, const struct gb_token_rec *rec,
                                                const char **ret_same);
/* NULL: none. */
const struct gb_token_rec *gb_tokens_index_named(const struct gb_tokens_index *index, const char *name);
void gb_tokens_index_done(struct gb_tokens_index *index);

#endif
