/* A one-pass reader of JSON text, as far as safetensors.c needs it. */
#ifndef GB_FORMAT_SAFETENSORS_TEXT_H
#define GB_FORMAT_SAFETENSORS_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

struct gb_json_text {
    const char *begin;
    const char *at;
    const char *end;
    char *out; /* where strings go: as much room as there is text; NULL: nowhere */
    struct gb_error *err;
};

struct gb_json_word {
    const char *s; /* NUL-terminated, in out */
    size_t len;
};

/* All return 0, or -1 with UNSUPPORTED_ARRAY, which says at which byte of the file. what: the sentence. */
int gb_json_text_fail(struct gb_json_text *text, const char *what);
void gb_json_text_space(struct gb_json_text *text); /* takes white space */
/* Takes c when it is next, after any white space. */
bool gb_json_text_accept(struct gb_json_text *text, char c);
int gb_json_text_expect(struct gb_json_text *text, char c, const char *what);
/* Goes to the next member of an object or array whose opening bracket was taken. *first is true before the first one,
 * and is cleared. Returns true while there is one more; a trailing comma sets `failed`. */
bool gb_json_text_more(struct gb_json_text *text, char close, bool *first, bool *failed);
/* Reads a string; NUL in it is refused. ret may be NULL. */
int gb_json_text_string(struct gb_json_text *text, struct gb_json_word *ret);
/* Reads a whole number from 0 to UINT64_MAX. */
int gb_json_text_u64(struct gb_json_text *text, uint64_t *ret);
/* Skips any value. */
int gb_json_text_skip(struct gb_json_text *text);

#endif
