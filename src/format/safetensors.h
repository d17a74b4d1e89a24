/* The safetensors format: eight bytes with the length of a header, the header, a JSON object that says of each
 * tensor what it is and where its bytes are, the bytes. The header is read by hand, strictly, in one pass and in
 * memory of its own size: a tree of a hostile one would take many times that. Pure functions. */
#ifndef GB_FORMAT_SAFETENSORS_H
#define GB_FORMAT_SAFETENSORS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "base/json_writer.h"
#include "model/tensor.h"

/* Bytes that tell the format: the length of the header, and its opening brace. */
#define GB_SAFETENSORS_LENGTH 8
#define GB_SAFETENSORS_PREFIX 9
/* Bytes that say best whether something is meant as such a file. */
#define GB_SAFETENSORS_LOOK 12
/* The longest header that is read, as the format says; and the longest of a file whose tensors become, or were,
 * buffers of their own, and of what a list of tensors makes. */
#define GB_SAFETENSORS_HEADER_MAX 100000000u
#define GB_SAFETENSORS_HEADER_EACH_MAX (16u << 20)
/* A key that is not the name of a tensor. */
#define GB_SAFETENSORS_METADATA "__metadata__"
/* Tensors of one file, in and out. */
#define GB_SAFETENSORS_TENSORS_MAX 65536

struct gb_safetensor {
    const char *name; /* UTF-8 without NUL */
    size_t name_len;
    enum gb_dtype dtype;
    struct gb_shape shape;
    uint64_t begin; /* of its bytes among those of all */
    uint64_t end;
};

struct gb_safetensors {
    struct gb_safetensor *tensors; /* in the order of their bytes */
    size_t count;
    uint64_t bytes;     /* of all; no byte belongs to none */
    char *text;         /* the names */
    size_t metadata_at; /* where the object is in the header that was read */
    size_t metadata_n;  /* 0: none, or null */
};

/* Tells whether data[0..n), the first bytes of something, begin as such a file, whole or damaged: a length below a
 * tebibyte, and then what continues as a header's JSON, as far as GB_SAFETENSORS_LOOK bytes show. */
bool gb_safetensors_begins(const void *data, size_t n);

/* Finds where the data begin, from the first GB_SAFETENSORS_PREFIX bytes. Returns 0, or -1 with UNSUPPORTED_ARRAY, or
 * with BODY_TOO_LARGE for a header longer than is read. */
int gb_safetensors_data_at(const void *prefix, size_t *ret_at, struct gb_error *err);

/* Reads header[0..n), the bytes between the length and the data. Returns 0, or -1 with UNSUPPORTED_ARRAY (no such
 * header, and at which byte of the file; or a tensor that cannot be stored), BODY_TOO_LARGE (too many tensors) or
 * SATURATED. */
int gb_safetensors_parse(const char *header, size_t n, struct gb_safetensors *ret, struct gb_error *err);
void gb_safetensors_done(struct gb_safetensors *file); /* a zeroed one is accepted */

/* Write length and header into an empty out: open, the tensors in the order of their bytes, close. If tensors of larger
 * elements come first, each is aligned for its type. */
void gb_safetensors_open(struct gb_json_writer *out);
void gb_safetensors_add(struct gb_json_writer *out, const char *name, enum gb_dtype dtype, const struct gb_shape *shape,
                        uint64_t begin, uint64_t end);
/* Ends the header in out->s[0..out->used), a multiple of eight bytes. Returns 0, or -1 with SATURATED. */
int gb_safetensors_close(struct gb_json_writer *out, struct gb_error *err);

/* A one-pass reader of JSON text, as far as safetensors.c needs it. */

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
