#include "http/message/byteranges.h"

#include <inttypes.h>
#include <stdio.h>

#include "base/digest.h"

int gb_byteranges_init(struct gb_byteranges *multipart, const char *media, uint64_t total, struct gb_error *err) {
    uint64_t random[2];

    if (gb_random(random, sizeof(random), err) < 0)
        return -1;
    snprintf(multipart->boundary, sizeof(multipart->boundary), "gpubuf%016" PRIx64 "%016" PRIx64, random[0], random[1]);
    multipart->media = media;
    multipart->total = total;
    return 0;
}

size_t gb_byteranges_head(const struct gb_byteranges *multipart, const struct gb_range_set *ranges, unsigned index,
                          char *out) {
    const struct gb_range *r = &ranges->range[index];

    return (size_t)snprintf(out, GB_MULTIPART_TEXT_SIZE,
                            "%s--%s\r\nContent-Type: %s\r\nContent-Range: bytes %" PRIu64 "-%" PRIu64 "/%" PRIu64
                            "\r\n\r\n",
                            index > 0 ? "\r\n" : "", multipart->boundary, multipart->media, r->first,
                            r->first + r->length - 1, multipart->total);
}

size_t gb_byteranges_tail(const struct gb_byteranges *multipart, char *out) {
    return (size_t)snprintf(out, GB_MULTIPART_TEXT_SIZE, "\r\n--%s--\r\n", multipart->boundary);
}

uint64_t gb_byteranges_length(const struct gb_byteranges *multipart, const struct gb_range_set *ranges) {
    char text[GB_MULTIPART_TEXT_SIZE];
    uint64_t length = gb_byteranges_tail(multipart, text);
    unsigned i;

    for (i = 0; i < ranges->count; i++)
        length += gb_byteranges_head(multipart, ranges, i, text) + ranges->range[i].length;
    return length;
}
