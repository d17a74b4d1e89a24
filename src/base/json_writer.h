/* Writes JSON text into one buffer: no tree, no allocation per value. The writer puts the commas. */
#ifndef GB_BASE_JSON_WRITER_H
#define GB_BASE_JSON_WRITER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Zero-initialised is empty, and its buffer grows. If memory is exhausted, `failed` is set and all that follows is
 * dropped. */
struct gb_json_writer {
    char *s;
    size_t used;
    size_t size;
    bool fixed; /* s is borrowed, and does not grow */
    bool failed;
    bool comma; /* the next value needs one before it */
};

/* An empty writer into the caller's buffer, which allocates nothing. */
struct gb_json_writer gb_json_fixed(char *s, size_t size);
/* Frees a buffer that grew; the writer is empty again. */
void gb_json_done(struct gb_json_writer *out);

/* Inside an object every value carries its key; inside an array key is NULL. Keys are our own words and need no
 * escape. */
void gb_json_open(struct gb_json_writer *out, const char *key, char bracket);            /* '{' or '[' */
void gb_json_open_named(struct gb_json_writer *out, const char *name, char bracket);     /* a key that is any text */
void gb_json_close(struct gb_json_writer *out, char bracket);                            /* '}' or ']' */
void gb_json_put_string(struct gb_json_writer *out, const char *key, const char *value); /* NULL gives null */
void gb_json_put_u64(struct gb_json_writer *out, const char *key, uint64_t value);       /* beyond INT64_MAX: that */
void gb_json_put_i64(struct gb_json_writer *out, const char *key, int64_t value);
void gb_json_put_bool(struct gb_json_writer *out, const char *key, bool value);
void gb_json_put_null(struct gb_json_writer *out, const char *key);
/* null for UINT64_MAX, which stands for no limit. */
void gb_json_put_limit(struct gb_json_writer *out, const char *key, uint64_t value);
/* A finite number, as short as 15 digits permit. */
void gb_json_put_number(struct gb_json_writer *out, const char *key, double value);
/* Nanoseconds as seconds with all their digits. */
void gb_json_put_seconds(struct gb_json_writer *out, const char *key, uint64_t ns);
/* Microseconds since the epoch as RFC 3339. */
void gb_json_put_time(struct gb_json_writer *out, const char *key, int64_t wall_us);
void gb_json_put_time_or_null(struct gb_json_writer *out, const char *key, int64_t wall_us); /* 0 gives null */
/* Text that a client or a library chose: a byte that is no UTF-8 becomes U+FFFD, controls (C0, DEL, C1) are escaped,
 * and at most max bytes are written between the quotes, whole characters all. */
void gb_json_put_untrusted(struct gb_json_writer *out, const char *key, const char *value, size_t max);
/* Text that is JSON already. */
void gb_json_put_raw(struct gb_json_writer *out, const char *key, const char *json);

/* Members that another writer wrote, which began with .comma = true. */
void gb_json_put_members(struct gb_json_writer *out, const char *members, size_t n);

/* Text as it is, that is no JSON; the next value needs no comma. */
void gb_json_put_text(struct gb_json_writer *out, const char *text);

/* Ends the text with a newline. */
void gb_json_end(struct gb_json_writer *out);

#endif
