#include "format/safetensors_text.h"

#include <string.h>

#include "base/encoding.h"
#include "base/parse.h"
#include "format/safetensors.h"

#define DEPTH_MAX 32

int gb_json_text_fail(struct gb_json_text *t, const char *what) {
    return gb_error_set(t->err, GB_ERR_UNSUPPORTED_ARRAY,
                        "the safetensors header is malformed at byte %zu of the file: %s; it must be a JSON object of "
                        "dtype, shape and data_offsets by tensor",
                        GB_SAFETENSORS_LENGTH + (size_t)(t->at - t->begin), what);
}

void gb_json_text_space(struct gb_json_text *t) {
    while (t->at < t->end && (*t->at == ' ' || *t->at == '\t' || *t->at == '\n' || *t->at == '\r'))
        t->at++;
}

bool gb_json_text_accept(struct gb_json_text *t, char c) {
    gb_json_text_space(t);
    if (t->at == t->end || *t->at != c)
        return false;
    t->at++;
    return true;
}

int gb_json_text_expect(struct gb_json_text *t, char c, const char *what) {
    return gb_json_text_accept(t, c) ? 0 : gb_json_text_fail(t, what);
}

bool gb_json_text_more(struct gb_json_text *t, char close, bool *first, bool *failed) {
    if (*first) {
        *first = false;
        return !gb_json_text_accept(t, close);
    }
    if (gb_json_text_accept(t, close))
        return false;
    *failed = gb_json_text_expect(t, ',', "a comma is missing") < 0;
    return !*failed;
}

/* --- strings ------------------------------------------------------------------------------------------------------ */

static void put(struct gb_json_text *t, char c) {
    if (t->out)
        *t->out++ = c;
}

static void put_code(struct gb_json_text *t, uint32_t code) {
    if (code < 0x80) {
        put(t, (char)code);
        return;
    }
    if (code < 0x800) {
        put(t, (char)(0xc0 | code >> 6));
    } else if (code < 0x10000) {
        put(t, (char)(0xe0 | code >> 12));
        put(t, (char)(0x80 | (code >> 6 & 0x3f)));
    } else {
        put(t, (char)(0xf0 | code >> 18));
        put(t, (char)(0x80 | (code >> 12 & 0x3f)));
        put(t, (char)(0x80 | (code >> 6 & 0x3f)));
    }
    put(t, (char)(0x80 | (code & 0x3f)));
}

/* Reads the four digits after \u. */
static int read_hex(struct gb_json_text *t, uint32_t *ret) {
    uint32_t code = 0;
    int i;

    if (t->end - t->at < 4)
        return gb_json_text_fail(t, "an escape does not end");
    for (i = 0; i < 4; i++) {
        int digit = gb_hex_digit(*t->at++);

        if (digit < 0)
            return gb_json_text_fail(t, "an escape is not hexadecimal");
        code = code << 4 | (uint32_t)digit;
    }
    *ret = code;
    return 0;
}

static int read_unicode(struct gb_json_text *t) {
    uint32_t code;
    uint32_t low;

    if (read_hex(t, &code) < 0)
        return -1;
    if (code == 0)
        return gb_json_text_fail(t, "a string holds NUL");
    if (code >= 0xd800 && code < 0xe000) {
        if (code >= 0xdc00 || t->end - t->at < 6 || t->at[0] != '\\' || t->at[1] != 'u')
            return gb_json_text_fail(t, "half a surrogate pair");
        t->at += 2;
        if (read_hex(t, &low) < 0)
            return -1;
        if (low < 0xdc00 || low >= 0xe000)
            return gb_json_text_fail(t, "half a surrogate pair");
        code = 0x10000 + ((code - 0xd800) << 10) + (low - 0xdc00);
    }
    put_code(t, code);
    return 0;
}

/* Reads the character after a backslash. */
static int read_escape(struct gb_json_text *t) {
    static const char letters[] = "\"\\/bfnrt";
    static const char meant[] = "\"\\/\b\f\n\r\t";
    const char *letter;
    char c;

    if (t->at == t->end)
        return gb_json_text_fail(t, "an escape does not end");
    c = *t->at++;
    if (c == 'u')
        return read_unicode(t);
    letter = c != '\0' ? strchr(letters, c) : NULL;
    if (!letter)
        return gb_json_text_fail(t, "an escape is unknown");
    put(t, meant[letter - letters]);
    return 0;
}

/* Copies one character of more than one byte (RFC 3629). */
static int read_utf8(struct gb_json_text *t) {
    unsigned char first = (unsigned char)*t->at;
    int more = first >= 0xf0 ? 3 : first >= 0xe0 ? 2 : 1;
    uint32_t code = first & (0x3fu >> more);
    int i;

    if (first < 0xc2 || first > 0xf4 || t->end - t->at <= more)
        return gb_json_text_fail(t, "a string is not UTF-8");
    for (i = 1; i <= more; i++) {
        unsigned char c = (unsigned char)t->at[i];

        if ((c & 0xc0) != 0x80)
            return gb_json_text_fail(t, "a string is not UTF-8");
        code = code << 6 | (c & 0x3f);
    }
    if ((more == 2 && (code < 0x800 || (code >= 0xd800 && code < 0xe000))) ||
        (more == 3 && (code < 0x10000 || code > 0x10ffff)))
        return gb_json_text_fail(t, "a string is not UTF-8");
    for (i = 0; i <= more; i++)
        put(t, *t->at++);
    return 0;
}

int gb_json_text_string(struct gb_json_text *t, struct gb_json_word *ret) {
    const char *start = t->out;
    int r = gb_json_text_expect(t, '"', "a string is missing");

    while (r == 0 && t->at < t->end && *t->at != '"') {
        unsigned char c = (unsigned char)*t->at;

        if (c < 0x20)
            return gb_json_text_fail(t, "a string holds a control character");
        if (c >= 0x80) {
            r = read_utf8(t);
            continue;
        }
        t->at++;
        if (c == '\\')
            r = read_escape(t);
        else
            put(t, (char)c);
    }
    if (r < 0)
        return -1;
    if (t->at == t->end)
        return gb_json_text_fail(t, "a string does not end");
    t->at++;
    if (ret)
        *ret = (struct gb_json_word){.s = start, .len = (size_t)(t->out - start)};
    put(t, '\0');
    return 0;
}

/* --- the rest ----------------------------------------------------------------------------------------------------- */

int gb_json_text_u64(struct gb_json_text *t, uint64_t *ret) {
    const char *digits;
    size_t n;

    gb_json_text_space(t);
    digits = t->at;
    while (t->at < t->end && *t->at >= '0' && *t->at <= '9')
        t->at++;
    n = (size_t)(t->at - digits);
    if (n == 0 || (n > 1 && digits[0] == '0') ||
        (t->at < t->end && (*t->at == '.' || *t->at == 'e' || *t->at == 'E')) ||
        gb_parse_u64(digits, n, ret) != GB_PARSE_OK)
        return gb_json_text_fail(t, "a size or offset is not a whole number of 64 bits");
    return 0;
}

static int skip_number(struct gb_json_text *t) {
    const char *start = t->at;

    while (t->at < t->end && *t->at != '\0' && strchr("+-.0123456789eE", *t->at))
        t->at++;
    return t->at > start ? 0 : gb_json_text_fail(t, "a value is missing");
}

static int skip_word(struct gb_json_text *t) {
    static const char *const words[] = {"null", "true", "false"};
    size_t i;

    for (i = 0; i < sizeof(words) / sizeof(words[0]); i++) {
        size_t n = strlen(words[i]);

        if ((size_t)(t->end - t->at) >= n && memcmp(t->at, words[i], n) == 0) {
            t->at += n;
            return 0;
        }
    }
    return skip_number(t);
}

static int skip(struct gb_json_text *t, int depth) {
    bool object = gb_json_text_accept(t, '{');
    bool first = true;
    bool failed = false;

    if (depth == DEPTH_MAX)
        return gb_json_text_fail(t, "it is nested too deeply");
    if (!object && !gb_json_text_accept(t, '['))
        return t->at < t->end && *t->at == '"' ? gb_json_text_string(t, NULL) : skip_word(t);
    while (gb_json_text_more(t, object ? '}' : ']', &first, &failed)) {
        if (object && (gb_json_text_string(t, NULL) < 0 || gb_json_text_expect(t, ':', "a colon is missing") < 0))
            return -1;
        if (skip(t, depth + 1) < 0)
            return -1;
    }
    return failed ? -1 : 0;
}

int gb_json_text_skip(struct gb_json_text *t) {
    return skip(t, 0);
}
