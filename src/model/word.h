/* Words from a fixed list, for the parsers of this layer. */
#ifndef GB_MODEL_WORD_H
#define GB_MODEL_WORD_H

#include <stddef.h>

#include "base/error.h"

/* Finds word[0..len) among names[0..count). Returns 0, or -1 with INVALID_ARGUMENT that calls the thing `what`, quotes
 * the word and lists all names. */
int gb_word_parse(const char *what, const char *const *names, size_t count, const char *word, size_t len,
                  size_t *ret_index, struct gb_error *err);

/* The word as it may stand in an error's detail: cut to fit, with '?' for every byte that is not printable ASCII.
 * Returns out. */
#define GB_WORD_QUOTE_SIZE 40
char *gb_word_quote(const char *word, size_t len, char *out);

#endif
