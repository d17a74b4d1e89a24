/* Structured fields (RFC 9651), as far as dictionaries of them are read here. Pure. */
#ifndef GB_HTTP_MESSAGE_FIELDS_H
#define GB_HTTP_MESSAGE_FIELDS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum gb_field_type {
    GB_FIELD_INTEGER,
    GB_FIELD_BYTES,
    GB_FIELD_OTHER /* well-formed */
};

/* One member of a dictionary; its parameters were read and are of no interest. */
struct gb_field {
    const char *key;
    size_t key_n;
    enum gb_field_type type;
    int64_t integer;
    const char *text; /* BYTES: the base64 between the colons, of permitted letters alone */
    size_t text_n;
};

/* The next member of the dictionary that is one line of a header; *at begins at the line and is moved on. 1; 0 at the end;
 * -1 when it is malformed. Members of one key: the last one counts, which is the caller's to see to. */
int gb_field_next(const char **at, struct gb_field *ret);

/* May the byte stand in a token, such as the name of a field? Letters, digits and !#$%&'*+-.^_`|~ may. */
static inline bool gb_field_is_token(unsigned char c) {
    static const uint32_t words[8] = {0, 0x03ff6cfa, 0xc7fffffe, 0x57ffffff, 0, 0, 0, 0};

    return words[c >> 5] >> (c & 31) & 1;
}

#endif
