/* Writes JSON text into one growing buffer: no tree, no allocation per value. Commas come by themselves. */
#ifndef GB_FORMAT_JSON_WRITER_H
#define GB_FORMAT_JSON_WRITER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

/* Zero-initialised is empty. Once memory is exhausted everything that follows is dropped and `failed` says so. */
struct gb_json_writer {
    char *s;
    size_t used;
    size_t size;
    bool failed;
    bool comma; /* the next value needs one before it */
};

void gb_json_done(struct gb_json_writer *out);

/* Inside an object every value carries its key; inside an array key is NULL. Keys are our own words and need no escape. */
void gb_json_open(struct gb_json_writer *out, const char *key, char bracket);        /* '{' or '[' */
void gb_json_open_named(struct gb_json_writer *out, const char *name, char bracket); /* a key that is any text */
void gb_json_close(struct gb_json_writer *out, char bracket);                        /* '}' or ']' */
void gb_json_put_string(struct gb_json_writer *out, const char *key, const char *value);
void gb_json_put_u64(struct gb_json_writer *out, const char *key, uint64_t value); /* beyond INT64_MAX: that */
void gb_json_put_i64(struct gb_json_writer *out, const char *key, int64_t value);
void gb_json_put_bool(struct gb_json_writer *out, const char *key, bool value);
void gb_json_put_null(struct gb_json_writer *out, const char *key);
/* null for GB_UNLIMITED. */
void gb_json_put_limit(struct gb_json_writer *out, const char *key, uint64_t value);
/* A finite number, as short as 15 digits permit. */
void gb_json_put_number(struct gb_json_writer *out, const char *key, double value);
/* Nanoseconds as seconds with all their digits. */
void gb_json_put_seconds(struct gb_json_writer *out, const char *key, uint64_t ns);
/* Microseconds since the epoch as RFC 3339. */
void gb_json_put_time(struct gb_json_writer *out, const char *key, int64_t wall_us);
/* Text that is JSON already. */
void gb_json_put_raw(struct gb_json_writer *out, const char *key, const char *json);

/* Text as it is, that is no JSON; the next value needs no comma. */
void gb_json_put_text(struct gb_json_writer *out, const char *text);

/* Ends the text with a newline. */
void gb_json_end(struct gb_json_writer *out);

#endif
