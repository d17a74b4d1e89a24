/* Byte ranges and lists of entity tags. Ranges that were parsed are written and parsed again; the texts of a reply with
 * several of them fill exactly the length that it announces. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "fuzz.h"
#include "http/message/fields.h"

const char *const gb_fuzz_seeds[] = {
    "bytes=0-99",
    "bytes=-5",
    "bytes=18446744073709551615-",
    "bytes=5-4,7-8",
    "\"1.2\", W/\"1.3-npy\" , \"\"",
    "*",
    "W/\"a\",,\"b\"",
    "\"unfinished",
    "bytes = 1 - 2\t",
    "bytes=0-9,20-29, 5-24,-1",
    NULL,
};

static void check_again(const struct gb_range_set *ranges, uint64_t size) {
    char text[GB_RANGES_MAX * 42 + 8] = "bytes=";
    struct gb_range_set again;
    size_t n = strlen(text);
    unsigned i;

    for (i = 0; i < ranges->count; i++)
        n += (size_t)sprintf(text + n, "%s%" PRIu64 "-%" PRIu64, i > 0 ? "," : "", ranges->range[i].first,
                             ranges->range[i].first + ranges->range[i].length - 1);
    FUZZ_ASSERT(gb_range_parse(text, size, &again) == GB_RANGE_PART && again.count == ranges->count);
    FUZZ_ASSERT(memcmp(again.range, ranges->range, ranges->count * sizeof(again.range[0])) == 0);
}

static void check_multipart(const struct gb_range_set *ranges, uint64_t size) {
    struct gb_byteranges parts = {.boundary = "gpubuf0123456789abcdef0123456789abcdef", .total = size};
    char text[GB_MULTIPART_TEXT_SIZE];
    uint64_t length = 0;
    unsigned i;

    parts.media = "application/octet-stream";
    for (i = 0; i < ranges->count; i++) {
        size_t n = gb_byteranges_head(&parts, ranges, i, text);

        FUZZ_ASSERT(n < sizeof(text) && n == strlen(text) && strcmp(text + n - 4, "\r\n\r\n") == 0);
        length += n + ranges->range[i].length;
    }
    length += gb_byteranges_tail(&parts, text);
    FUZZ_ASSERT(gb_byteranges_length(&parts, ranges) == length);
}

static void check_range(const char *text, uint64_t size) {
    struct gb_range_set ranges;
    uint64_t total = 0;
    unsigned i;

    if (gb_range_parse(text, size, &ranges) != GB_RANGE_PART)
        return;
    FUZZ_ASSERT(ranges.count >= 1 && ranges.count <= GB_RANGES_MAX);
    for (i = 0; i < ranges.count; i++) {
        const struct gb_range *range = &ranges.range[i];

        FUZZ_ASSERT(range->length >= 1 && range->first < size && range->length <= size - range->first);
        FUZZ_ASSERT(range->length <= size - total); /* no byte twice */
        total += range->length;
    }
    check_again(&ranges, size);
    check_multipart(&ranges, size);
}

static void check_tags(const char *text) {
    const char *const tags[] = {"1.2", "1.2-npy"};
    struct gb_error err = GB_ERROR_INIT;
    const char *at = text;
    struct gb_etag tag;
    size_t steps = 0;
    int rc;

    do {
        rc = gb_etag_next(text, &at, &tag);
        FUZZ_ASSERT(at >= text && at <= text + strlen(text));
        FUZZ_ASSERT(++steps <= strlen(text) + 1);
    } while (rc == 1);
    /* A malformed list matches nothing. */
    if (gb_etag_list_check("If-Match", text, &err) != 0)
        FUZZ_ASSERT(!gb_etag_list_match(text, true, tags, 2));
    /* A tag that matches strongly also matches weakly. */
    if (gb_etag_list_match(text, false, tags, 2))
        FUZZ_ASSERT(gb_etag_list_match(text, true, tags, 2));
    (void)gb_etag_if_range(text, "1.2");
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    char *text = malloc(size + 1);

    FUZZ_ASSERT(text != NULL);
    memcpy(text, data, size);
    text[size] = '\0';
    check_range(text, 0);
    check_range(text, 100);
    check_range(text, UINT64_MAX);
    check_tags(text);
    free(text);
    return 0;
}
