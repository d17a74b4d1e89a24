/* multipart/byteranges (RFC 9110, 14.6): the text around the parts. */
#ifndef GB_HTTP_MESSAGE_BYTERANGES_H
#define GB_HTTP_MESSAGE_BYTERANGES_H

#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "http/message/range.h"

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

#endif
