/* Structured fields (RFC 9651): the dictionaries and items among them. Pure. */
#ifndef GB_HTTP_MESSAGE_FIELDS_H
#define GB_HTTP_MESSAGE_FIELDS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

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
static inline bool gb_field_is_token(unsigned char c) {
    static const uint32_t words[8] = {0, 0x03ff6cfa, 0xc7fffffe, 0x57ffffff, 0, 0, 0, 0};

    return words[c >> 5] >> (c & 31) & 1;
}

#endif
