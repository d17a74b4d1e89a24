/* Values of header fields: structured fields (RFC 9651), entity tags, ranges, the parts of multipart/byteranges; and
 * the memory of a request's texts. Pure, but for the random boundary of parts. */
#ifndef GB_HTTP_MESSAGE_FIELDS_H
#define GB_HTTP_MESSAGE_FIELDS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

enum gb_field_type {
    GB_FIELD_INTEGER,
    GB_FIELD_BOOLEAN,
    GB_FIELD_STRING,
    GB_FIELD_BYTES,
    GB_FIELD_OTHER /* well-formed */
};

/* An item, or one member of a dictionary. Its parameters are checked and dropped. */
struct gb_field {
    const char *key; /* of a member */
    size_t key_n;
    enum gb_field_type type;
    int64_t integer;  /* BOOLEAN: 0 or 1 */
    const char *text; /* BYTES: the base64 between the colons, of permitted letters alone; STRING: what stands between
                       * the quotes, as it stands there */
    size_t text_n;
};

/* Reads the next member of a dictionary, which is one line of a header. *at begins at the line and is moved on. Returns
 * 1; 0 at the end; -1 if it is malformed. Of several members with one key the last counts; the caller sees to that. */
int gb_field_next(const char **at, struct gb_field *ret);

/* Reads a header whose value is one item. Returns 0; -1 if it is malformed. */
int gb_field_item(const char *line, struct gb_field *ret);

/* Whether the byte may stand in a token, such as the name of a field: letters, digits and !#$%&'*+-.^_`|~ may. */
bool gb_field_is_token(unsigned char c);

/* Entity tags and the lists of them in If-Match, If-None-Match and If-Range (RFC 9110, 8.8.3 and 13.1). Pure. */

/* One tag of a list, without its quotes. */
struct gb_etag {
    const char *s;
    size_t len;
    bool weak;
    bool any; /* the list is "*" */
};

/* Walks a list, from *at = list on. Returns 1: *ret is the next tag; 0: the end; -1: malformed. "*" must be alone. */
int gb_etag_next(const char *list, const char **at, struct gb_etag *ret);

/* Checks the whole list; `header` names it in the error. Returns 0, or -1 with MALFORMED_REQUEST. An empty list is
 * malformed. */
int gb_etag_list_check(const char *header, const char *list, struct gb_error *err);

/* Whether a well-formed list holds one of tags[0..count) (each without quotes, strong). `weak` compares as
 * If-None-Match does (W/"a" equals "a"); without it a weak tag never matches. "*" matches. A malformed list never
 * does. */
bool gb_etag_list_match(const char *list, bool weak, const char *const *tags, size_t count);

/* Whether an If-Range value is this strong tag. Dates and weak tags never match. */
bool gb_etag_if_range(const char *value, const char *tag);

/* Ranges of bytes (RFC 9110, 14). Pure. */

#define GB_RANGES_MAX 64 /* of one header; with more of them it is ignored, as RFC 9110, 14.2 permits */

struct gb_range {
    uint64_t first;
    uint64_t length; /* at least 1 */
};

/* In the order of the request; no two share a byte. */
struct gb_range_set {
    unsigned count;
    struct gb_range range[GB_RANGES_MAX];
};

enum gb_range_kind {
    GB_RANGE_WHOLE,        /* no range, another unit, too many or malformed: the whole is sent */
    GB_RANGE_PART,         /* *ret says which: one or several */
    GB_RANGE_UNSATISFIABLE /* 416: without any byte */
};

/* Reads a Range header (NULL: absent) for a representation of `size` bytes: "bytes=a-b", "bytes=a-", "bytes=-n", or
 * several of them separated by commas. An end beyond the last byte is cut; ranges that lie beyond it are left out;
 * ranges that overlap become one, in the place of the first of them. *ret is written with PART only. */
enum gb_range_kind gb_range_parse(const char *value, uint64_t size, struct gb_range_set *ret);

/* multipart/byteranges (RFC 9110, 14.6): the text around the parts. */

/* 128 random bits, which the author of the data cannot have known. */
#define GB_BOUNDARY_SIZE 40

struct gb_byteranges {
    char boundary[GB_BOUNDARY_SIZE];
    const char *media; /* of every part; static */
    uint64_t total;    /* bytes of the representation */
};

/* Returns 0, or -1 with INTERNAL if the kernel gives no random bytes. */
int gb_byteranges_init(struct gb_byteranges *multipart, const char *media, uint64_t total, struct gb_error *err);

/* Writes the text before the part of that index, and the text behind the last part, to out (GB_MULTIPART_TEXT_SIZE
 * bytes). Returns its length. */
#define GB_MULTIPART_TEXT_SIZE 256
size_t gb_byteranges_head(const struct gb_byteranges *multipart, const struct gb_range_set *ranges, unsigned index,
                          char *out);
size_t gb_byteranges_tail(const struct gb_byteranges *multipart, char *out);

/* Returns the length of the whole body: the parts and the text around them. */
uint64_t gb_byteranges_length(const struct gb_byteranges *multipart, const struct gb_range_set *ranges);

/* Short texts that live as long as one request: its target, header fields and query. */

/* Bytes of text that most requests do with. */
#define GB_TEXT_ARENA_SMALL 1024

struct gb_text_arena {
    char *at; /* the block in use: small, then more */
    size_t size;
    size_t used;
    size_t more_size;
    char *more; /* allocated when small is full */
    char small[GB_TEXT_ARENA_SMALL];
};

/* Makes the arena empty. more_size: bytes of the second block, the last that the arena allocates. small is not
 * written. */
void gb_text_arena_init(struct gb_text_arena *arena, size_t more_size);
/* Frees all texts. A zeroed arena is accepted. */
void gb_text_arena_done(struct gb_text_arena *arena);

/* Copies s[0..n) and ends the copy with NUL. The copy lives as long as the arena. Returns NULL if memory is exhausted
 * or the arena is full. */
char *gb_text_arena_copy(struct gb_text_arena *arena, const char *s, size_t n);

#endif
