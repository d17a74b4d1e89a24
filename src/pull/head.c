#include "pull/head.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/encoding.h"
#include "base/parse.h"

struct line {
    const char *s;
    size_t n;
};

/* Up to the next LF, which is passed; a CR before it is none of the line. False: there is no LF. */
static bool next_line(const char **at, const char *end, struct line *ret) {
    const char *lf = memchr(*at, '\n', (size_t)(end - *at));

    if (!lf)
        return false;
    *ret = (struct line){*at, (size_t)(lf - *at)};
    if (ret->n > 0 && ret->s[ret->n - 1] == '\r')
        ret->n--;
    *at = lf + 1;
    return true;
}

static bool is_digit(char c) {
    return c >= '0' && c <= '9';
}

/* HTTP/1.1 200 OK */
static bool read_status(struct line line, struct gb_pull_head *ret) {
    if (line.n < 12 || memcmp(line.s, "HTTP/1.", 7) != 0 || !is_digit(line.s[7]) || line.s[8] != ' ')
        return false;
    if (!is_digit(line.s[9]) || !is_digit(line.s[10]) || !is_digit(line.s[11]) || (line.n > 12 && line.s[12] != ' '))
        return false;
    ret->status = (line.s[9] - '0') * 100 + (line.s[10] - '0') * 10 + (line.s[11] - '0');
    ret->closes = line.s[7] == '0';
    return ret->status >= 100;
}

static bool same(struct line a, const char *b) {
    return a.n == strlen(b) && strncasecmp(a.s, b, a.n) == 0;
}

static struct line trim(struct line line) {
    while (line.n > 0 && (line.s[0] == ' ' || line.s[0] == '\t')) {
        line.s++;
        line.n--;
    }
    while (line.n > 0 && (line.s[line.n - 1] == ' ' || line.s[line.n - 1] == '\t'))
        line.n--;
    return line;
}

static void keep(struct line value, char *ret, size_t size) {
    size_t i;

    ret[0] = '\0';
    if (value.n >= size)
        return;
    for (i = 0; i < value.n; i++)
        if ((unsigned char)value.s[i] < ' ' || value.s[i] == 0x7f)
            return;
    memcpy(ret, value.s, value.n);
    ret[value.n] = '\0';
}

/* bytes 0-99/1000 */
static bool read_range(struct line value, struct gb_pull_head *ret) {
    const char *dash = memchr(value.s, '-', value.n);
    const char *slash = memchr(value.s, '/', value.n);
    const char *end = value.s + value.n;

    if (value.n < 6 || strncasecmp(value.s, "bytes ", 6) != 0 || !dash || !slash || slash < dash)
        return false;
    if (gb_parse_u64(value.s + 6, (size_t)(dash - value.s - 6), &ret->first) != GB_PARSE_OK ||
        gb_parse_u64(dash + 1, (size_t)(slash - dash - 1), &ret->last) != GB_PARSE_OK ||
        gb_parse_u64(slash + 1, (size_t)(end - slash - 1), &ret->total) != GB_PARSE_OK)
        return false;
    ret->has_range = true;
    return ret->first <= ret->last && ret->last < ret->total;
}

static bool read_length(struct line value, struct gb_pull_head *ret) {
    uint64_t length;

    if (gb_parse_u64(value.s, value.n, &length) != GB_PARSE_OK || (ret->has_length && length != ret->length))
        return false;
    ret->has_length = true;
    ret->length = length;
    return true;
}

static void read_crc32c(struct line value, struct gb_pull_head *ret) {
    if (gb_hex_u32(value.s, value.n, &ret->crc32c))
        ret->has_crc32c = true;
}

static void read_retry_after(struct line value, struct gb_pull_head *ret) {
    uint64_t s;

    if (gb_parse_u64(value.s, value.n, &s) == GB_PARSE_OK)
        ret->retry_after_s = s < 3600 ? (unsigned)s : 3600;
}

static bool read_field(struct line name, struct line value, struct gb_pull_head *ret) {
    if (same(name, "Content-Length"))
        return read_length(value, ret);
    if (same(name, "Content-Range"))
        return ret->status != 206 || read_range(value, ret);
    if (same(name, "Transfer-Encoding") || (same(name, "Content-Encoding") && !same(value, "identity")))
        ret->coded = true;
    else if (same(name, "Connection"))
        ret->closes = ret->closes || same(value, "close");
    else if (same(name, "ETag"))
        keep(value, ret->tag, sizeof(ret->tag));
    else if (same(name, "Location"))
        keep(value, ret->location, sizeof(ret->location));
    else if (same(name, "Retry-After"))
        read_retry_after(value, ret);
    else if (same(name, "Gpubuf-Crc32c"))
        read_crc32c(value, ret);
    else if (same(name, "Gpubuf-Epoch") || same(name, "Gpubuf-Replica"))
        ret->registered = true;
    else if (same(name, "Gpubuf-Generation"))
        ret->has_generation = gb_parse_u64(value.s, value.n, &ret->generation) == GB_PARSE_OK;
    return true;
}

int gb_pull_head_read(const char *bytes, size_t n, struct gb_pull_head *ret) {
    const char *end = bytes + n;
    const char *at = bytes;
    struct line line;
    const char *colon;

    memset(ret, 0, sizeof(*ret));
    if (!next_line(&at, end, &line))
        return n >= GB_PULL_HEAD_MAX || (n >= 5 && memcmp(bytes, "HTTP/", 5) != 0) ? -1 : 0;
    if (!read_status(line, ret))
        return -1;
    while (next_line(&at, end, &line)) {
        if (line.n == 0)
            return (int)(at - bytes);
        colon = memchr(line.s, ':', line.n);
        /* A line that begins with a space would continue the one before. */
        if (!colon || colon == line.s || line.s[0] == ' ' || line.s[0] == '\t')
            return -1;
        if (!read_field((struct line){line.s, (size_t)(colon - line.s)},
                        trim((struct line){colon + 1, line.n - (size_t)(colon + 1 - line.s)}), ret))
            return -1;
    }
    return n >= GB_PULL_HEAD_MAX ? -1 : 0;
}
