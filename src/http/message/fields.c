/* Fields of heads: tokens and lists, ranges, conditions, types of parts. Pure: what they say is written down, nothing
 * is decided. */
#include "http/message/fields.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/hash.h"
#include "base/text.h"

/* --- fields ------------------------------------------------------------------------------------------------------- */

#define DIGITS_MAX 15

bool gb_field_is_token(unsigned char c) {
    static const uint32_t words[8] = {0, 0x03ff6cfa, 0xc7fffffe, 0x57ffffff, 0, 0, 0, 0};

    return words[c >> 5] >> (c & 31) & 1;
}

static bool is_digit(char c) {
    return c >= '0' && c <= '9';
}

static bool is_lower(char c) {
    return c >= 'a' && c <= 'z';
}

static bool is_alpha(char c) {
    return is_lower(c) || (c >= 'A' && c <= 'Z');
}

/* Each of these moves *at behind what it read; false: it is something else, or malformed. */

static bool take(const char **at, char c) {
    if (**at != c)
        return false;
    (*at)++;
    return true;
}

static bool take_key(const char **at, const char **ret, size_t *ret_n) {
    const char *s = *at;

    if (!is_lower(*s) && *s != '*')
        return false;
    while (is_lower(*s) || is_digit(*s) || (*s && strchr("_-.*", *s)))
        s++;
    *ret = *at;
    *ret_n = (size_t)(s - *at);
    *at = s;
    return true;
}

static bool take_number(const char **at, struct gb_field *ret) {
    bool minus = take(at, '-');
    const char *first = *at;
    const char *point;
    int64_t value = 0;

    for (; is_digit(**at) && *at - first <= DIGITS_MAX; (*at)++)
        value = value * 10 + (**at - '0');
    if (*at == first || *at - first > DIGITS_MAX)
        return false;
    ret->type = GB_FIELD_INTEGER;
    ret->integer = minus ? -value : value;
    if (**at != '.')
        return true;
    ret->type = GB_FIELD_OTHER;
    if (*at - first > DIGITS_MAX - 3)
        return false;
    point = ++*at;
    while (is_digit(**at) && *at - point <= 3)
        (*at)++;
    return *at > point && *at - point <= 3;
}

static bool take_string(const char **at, struct gb_field *ret) {
    ret->type = GB_FIELD_STRING;
    ret->text = *at + 1;
    for ((*at)++; **at && **at != '"'; (*at)++) {
        if (**at == '\\' && (*++*at != '"' && **at != '\\'))
            return false;
        if (**at < 0x20 || **at > 0x7e)
            return false;
    }
    ret->text_n = (size_t)(*at - ret->text);
    return take(at, '"');
}

static bool take_boolean(const char **at, struct gb_field *ret) {
    ret->type = GB_FIELD_BOOLEAN;
    ret->integer = *++*at == '1';
    return take(at, '0') || take(at, '1');
}

static bool take_token(const char **at) {
    while (is_alpha(**at) || is_digit(**at) || (**at && strchr("!#$%&'*+-.^_`|~:/", **at)))
        (*at)++;
    return true;
}

static bool take_bytes(const char **at, struct gb_field *ret) {
    ret->type = GB_FIELD_BYTES;
    ret->text = ++*at;
    while (is_alpha(**at) || is_digit(**at) || (**at && strchr("+/=", **at)))
        (*at)++;
    ret->text_n = (size_t)(*at - ret->text);
    return take(at, ':');
}

static bool take_bare(const char **at, struct gb_field *ret) {
    char c = **at;

    ret->type = GB_FIELD_OTHER;
    if (is_digit(c) || c == '-')
        return take_number(at, ret);
    if (c == '"')
        return take_string(at, ret);
    if (c == ':')
        return take_bytes(at, ret);
    if (is_alpha(c) || c == '*')
        return take_token(at);
    if (c == '?')
        return take_boolean(at, ret);
    if (c == '@') {
        bool whole = (++*at, take_number(at, ret)) && ret->type == GB_FIELD_INTEGER;

        ret->type = GB_FIELD_OTHER;
        return whole;
    }
    if (c == '%' && (*at)[1] == '"') {
        bool whole = ((*at)++, take_string(at, ret));

        ret->type = GB_FIELD_OTHER;
        return whole;
    }
    return false;
}

static void skip_spaces(const char **at) {
    while (**at == ' ')
        (*at)++;
}

static bool take_params(const char **at) {
    struct gb_field value;
    const char *key;
    size_t n;

    while (take(at, ';')) {
        skip_spaces(at);
        if (!take_key(at, &key, &n) || (take(at, '=') && !take_bare(at, &value)))
            return false;
    }
    return true;
}

static bool take_list(const char **at) {
    struct gb_field item;

    for ((*at)++;;) {
        skip_spaces(at);
        if (take(at, ')'))
            return true;
        if (!take_bare(at, &item) || !take_params(at) || (**at != ' ' && **at != ')'))
            return false;
    }
}

static bool take_member(const char **at, struct gb_field *ret) {
    if (!take_key(at, &ret->key, &ret->key_n))
        return false;
    ret->type = GB_FIELD_BOOLEAN; /* without a value: true */
    ret->integer = 1;
    if (take(at, '=')) {
        ret->type = GB_FIELD_OTHER;
        if (**at == '(' ? !take_list(at) : !take_bare(at, ret))
            return false;
    }
    return take_params(at);
}

int gb_field_next(const char **at, struct gb_field *ret) {
    skip_spaces(at);
    if (**at == '\0')
        return 0;
    if (!take_member(at, ret))
        return -1;
    *at += strspn(*at, " \t");
    if (**at == '\0')
        return 1;
    if (!take(at, ','))
        return -1;
    *at += strspn(*at, " \t");
    return **at ? 1 : -1; /* a comma that nothing follows */
}

int gb_field_item(const char *line, struct gb_field *ret) {
    skip_spaces(&line);
    if (!take_bare(&line, ret) || !take_params(&line))
        return -1;
    skip_spaces(&line);
    return *line == '\0' ? 0 : -1;
}

/* --- conditions --------------------------------------------------------------------------------------------------- */

static const char *skip_space(const char *s) {
    return s + strspn(s, " \t");
}

/* What may stand between the quotes: any visible byte but the quote itself. */
static bool is_etagc(unsigned char c) {
    return c == 0x21 || (c >= 0x23 && c != 0x7f);
}

static int read_tag(const char **at, struct gb_etag *ret) {
    const char *s = *at;
    struct gb_etag tag = {0};

    if (s[0] == 'W' && s[1] == '/') {
        tag.weak = true;
        s += 2;
    }
    if (*s != '"')
        return -1;
    tag.s = ++s;
    while (is_etagc((unsigned char)*s))
        s++;
    if (*s != '"')
        return -1;
    tag.len = (size_t)(s - tag.s);
    *at = s + 1;
    *ret = tag;
    return 1;
}

int gb_etag_next(const char *list, const char **at, struct gb_etag *ret) {
    const char *s = skip_space(*at);
    bool first = *at == list;

    if (first && *s == '*') {
        if (*skip_space(s + 1) != '\0')
            return -1;
        *ret = (struct gb_etag){.any = true};
        *at = s + strlen(s);
        return 1;
    }
    if (!first) {
        if (*s == '\0')
            return 0;
        if (*s != ',')
            return -1;
    }
    /* Empty elements between commas are permitted by the list syntax. */
    while (*s == ',')
        s = skip_space(s + 1);
    if (*s == '\0') {
        *at = s;
        return first ? -1 : 0;
    }
    if (read_tag(&s, ret) < 0)
        return -1;
    *at = s;
    return 1;
}

int gb_etag_list_check(const char *header, const char *list, struct gb_error *err) {
    const char *at = list;
    struct gb_etag tag;
    int r;

    while ((r = gb_etag_next(list, &at, &tag)) > 0) {
    }
    if (r < 0)
        return gb_error_set(err, GB_ERR_MALFORMED_REQUEST,
                            "%s must be * or a list of entity tags in double quotes, such as \"7.3\", \"7.4\"", header);
    return 0;
}

static bool tag_is(const struct gb_etag *tag, const char *text) {
    return strlen(text) == tag->len && memcmp(text, tag->s, tag->len) == 0;
}

bool gb_etag_list_match(const char *list, bool weak, const char *const *tags, size_t count) {
    const char *at = list;
    struct gb_etag tag;
    bool found = false;
    size_t i;
    int r;

    while ((r = gb_etag_next(list, &at, &tag)) > 0) {
        if (tag.any)
            return true;
        if (tag.weak && !weak)
            continue;
        for (i = 0; i < count; i++)
            found = found || tag_is(&tag, tags[i]);
    }
    return r == 0 && found;
}

bool gb_etag_if_range(const char *value, const char *tag) {
    const char *at = skip_space(value);
    struct gb_etag given;

    return read_tag(&at, &given) > 0 && *skip_space(at) == '\0' && !given.weak && tag_is(&given, tag);
}

/* --- range -------------------------------------------------------------------------------------------------------- */

/* A number that 64 bits cannot hold lies beyond every representation. Returns 0 or -1. */
static int read_number(const char *s, size_t n, uint64_t *ret) {
    enum gb_parse r = gb_parse_u64(s, n, ret);

    if (r == GB_PARSE_OVERFLOW)
        *ret = UINT64_MAX;
    return r == GB_PARSE_OK || r == GB_PARSE_OVERFLOW ? 0 : -1;
}

static enum gb_range_kind suffix(uint64_t n, uint64_t size, struct gb_range *ret) {
    if (n == 0 || size == 0)
        return GB_RANGE_UNSATISFIABLE;
    ret->length = n < size ? n : size;
    ret->first = size - ret->length;
    return GB_RANGE_PART;
}

/* One of the list, without spaces around it. WHOLE: malformed. */
static enum gb_range_kind parse_one(const char *s, size_t n, uint64_t size, struct gb_range *ret) {
    const char *dash = memchr(s, '-', n);
    uint64_t first;
    uint64_t last = UINT64_MAX;

    if (!dash)
        return GB_RANGE_WHOLE;
    if (dash == s)
        return read_number(s + 1, n - 1, &first) < 0 ? GB_RANGE_WHOLE : suffix(first, size, ret);
    if (read_number(s, (size_t)(dash - s), &first) < 0)
        return GB_RANGE_WHOLE;
    if (dash + 1 < s + n && read_number(dash + 1, (size_t)(s + n - dash - 1), &last) < 0)
        return GB_RANGE_WHOLE;
    if (last < first)
        return GB_RANGE_WHOLE;
    if (first >= size)
        return GB_RANGE_UNSATISFIABLE;
    ret->first = first;
    ret->length = (last < size ? last + 1 : size) - first;
    return GB_RANGE_PART;
}

static bool overlap(const struct gb_range *a, const struct gb_range *b) {
    return a->first < b->first ? b->first - a->first < a->length : a->first - b->first < b->length;
}

static struct gb_range join(const struct gb_range *a, const struct gb_range *b) {
    uint64_t first = a->first < b->first ? a->first : b->first;
    uint64_t a_end = a->first + a->length;
    uint64_t b_end = b->first + b->length;

    return (struct gb_range){.first = first, .length = (a_end > b_end ? a_end : b_end) - first};
}

/* What grows may reach others that it did not touch before, so it is checked again. */
static void add(struct gb_range_set *ranges, struct gb_range range) {
    unsigned place = ranges->count;
    unsigned i = 0;

    while (i < ranges->count) {
        if (!overlap(&ranges->range[i], &range)) {
            i++;
            continue;
        }
        range = join(&ranges->range[i], &range);
        place = i < place ? i : place;
        ranges->count--;
        memmove(&ranges->range[i], &ranges->range[i + 1], (ranges->count - i) * sizeof(range));
        i = 0;
    }
    if (place > ranges->count)
        place = ranges->count;
    memmove(&ranges->range[place + 1], &ranges->range[place], (ranges->count - place) * sizeof(range));
    ranges->range[place] = range;
    ranges->count++;
}

enum gb_range_kind gb_range_parse(const char *value, uint64_t size, struct gb_range_set *ret) {
    struct gb_range_set found = {.count = 0};
    unsigned asked = 0;

    if (!value || strncasecmp(value, "bytes=", 6) != 0)
        return GB_RANGE_WHOLE;
    value += 6;
    for (value += strspn(value, " \t,"); *value; value += strspn(value, " \t,")) {
        struct gb_range range;
        enum gb_range_kind kind;
        size_t span = strcspn(value, ",");
        size_t n = span;

        while (n > 0 && (value[n - 1] == ' ' || value[n - 1] == '\t'))
            n--;
        if (++asked > GB_RANGES_MAX)
            return GB_RANGE_WHOLE;
        kind = parse_one(value, n, size, &range);
        if (kind == GB_RANGE_WHOLE)
            return GB_RANGE_WHOLE;
        if (kind == GB_RANGE_PART)
            add(&found, range);
        value += span;
    }
    if (asked == 0)
        return GB_RANGE_WHOLE;
    if (found.count == 0)
        return GB_RANGE_UNSATISFIABLE;
    *ret = found;
    return GB_RANGE_PART;
}

/* --- byteranges --------------------------------------------------------------------------------------------------- */

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

/* --- text arena --------------------------------------------------------------------------------------------------- */

void gb_text_arena_init(struct gb_text_arena *arena, size_t more_size) {
    arena->at = arena->small;
    arena->size = sizeof(arena->small);
    arena->used = 0;
    arena->more_size = more_size;
    arena->more = NULL;
}

void gb_text_arena_done(struct gb_text_arena *arena) {
    free(arena->more);
    arena->more = NULL;
}

/* Texts in small stay there. */
static bool grow(struct gb_text_arena *arena) {
    if (arena->more)
        return false;
    arena->more = malloc(arena->more_size);
    if (!arena->more)
        return false;
    arena->at = arena->more;
    arena->size = arena->more_size;
    arena->used = 0;
    return true;
}

char *gb_text_arena_copy(struct gb_text_arena *arena, const char *s, size_t n) {
    char *copy;

    if (n + 1 > arena->size - arena->used && (!grow(arena) || n + 1 > arena->size))
        return NULL;
    copy = arena->at + arena->used;
    memcpy(copy, s, n);
    copy[n] = '\0';
    arena->used += n + 1;
    return copy;
}
