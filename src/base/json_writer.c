/* JSON text written into one buffer. Text of clients is escaped so that it is valid JSON and harmless on a terminal.
 * After a failed growth nothing more is written. The API, http, the log and the disk use it. */
#include "base/json_writer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/encoding.h"
#include "base/text.h"

struct gb_json_writer gb_json_fixed(char *s, size_t size) {
    return (struct gb_json_writer){.s = s, .size = size, .fixed = true};
}

void gb_json_done(struct gb_json_writer *out) {
    if (!out->fixed)
        free(out->s);
    *out = (struct gb_json_writer){0};
}

static char *grow(struct gb_json_writer *out, size_t n) {
    size_t size = out->size ? out->size : 1024;
    char *bigger;

    if (out->fixed || out->failed) {
        out->failed = true;
        return NULL;
    }
    while (size - out->used < n)
        size *= 2;
    bigger = realloc(out->s, size);
    if (!bigger) {
        out->failed = true;
        return NULL;
    }
    out->s = bigger;
    out->size = size;
    return out->s + out->used;
}

/* Room for n more bytes, or NULL. */
static inline char *reserve(struct gb_json_writer *out, size_t n) {
    return out->size - out->used >= n && !out->failed ? out->s + out->used : grow(out, n);
}

static void put(struct gb_json_writer *out, const char *s, size_t n) {
    char *at = reserve(out, n);

    if (!at)
        return;
    memcpy(at, s, n);
    out->used += n;
}

/* Begins a member or an element, with room for `room` bytes of its value. Returns where they go, or NULL. */
static char *begin(struct gb_json_writer *out, const char *key, size_t room) {
    size_t len = key ? strlen(key) : 0;
    char *at = reserve(out, (key ? len + 3 : 0) + room + out->comma);

    if (!at)
        return NULL;
    if (out->comma)
        *at++ = ',';
    out->comma = true;
    if (key) {
        *at++ = '"';
        at = (char *)memcpy(at, key, len) + len;
        *at++ = '"';
        *at++ = ':';
    }
    return at;
}

static void end(struct gb_json_writer *out, const char *at) {
    out->used = (size_t)(at - out->s);
}

static void put_key(struct gb_json_writer *out, const char *key) {
    const char *at = begin(out, key, 0);

    if (at)
        end(out, at);
}

static void put_value(struct gb_json_writer *out, const char *key, const char *value, size_t n) {
    char *at = begin(out, key, n);

    if (at)
        end(out, (char *)memcpy(at, value, n) + n);
}

void gb_json_put_text(struct gb_json_writer *out, const char *text) {
    put(out, text, strlen(text));
    out->comma = false;
}

void gb_json_open(struct gb_json_writer *out, const char *key, char bracket) {
    put_value(out, key, &bracket, 1);
    out->comma = false;
}

void gb_json_close(struct gb_json_writer *out, char bracket) {
    put(out, &bracket, 1);
    out->comma = true;
}

void gb_json_put_raw(struct gb_json_writer *out, const char *key, const char *json) {
    put_value(out, key, json, strlen(json));
}

/* Characters that need an escape between quotes. */
static bool is_special(unsigned char c) {
    return c < 0x20 || c == '"' || c == '\\' || c == 0x7f;
}

/* The escape of a character, or 0 if it needs no escape. */
static size_t escape(unsigned char c, char ret[8]) {
    if (!is_special(c))
        return 0;
    return (size_t)snprintf(ret, 8, c == '"' || c == '\\' ? "\\%c" : "\\u%04x", c);
}

/* In quotes, with escapes. */
static void put_text(struct gb_json_writer *out, const char *value) {
    const char *plain = value;
    char text[8];

    put(out, "\"", 1);
    for (; *value; value++) {
        size_t n = escape((unsigned char)*value, text);

        if (n == 0)
            continue;
        put(out, plain, (size_t)(value - plain));
        plain = value + 1;
        put(out, text, n);
    }
    put(out, plain, (size_t)(value - plain));
    put(out, "\"", 1);
}

/* Most values need no escape; this is found out while they are copied. */
void gb_json_put_string(struct gb_json_writer *out, const char *key, const char *value) {
    size_t n = value ? strlen(value) : 0;
    char *at;
    size_t i;

    if (!value) {
        gb_json_put_null(out, key);
        return;
    }
    at = begin(out, key, n + 2);
    if (!at)
        return;
    *at++ = '"';
    for (i = 0; i < n && !is_special((unsigned char)value[i]); i++)
        at[i] = value[i];
    if (i == n) {
        at[n] = '"';
        end(out, at + n + 1);
        return;
    }
    end(out, at - 1);
    put_text(out, value);
}

/* The same of a character of n bytes, 0: that is no UTF-8. C1 controls are two bytes, and a terminal obeys them. */
static size_t escape_untrusted(const char *value, size_t n, char ret[8]) {
    unsigned char last = (unsigned char)(n == 2 ? value[1] : 0);

    if (n == 0)
        return (size_t)snprintf(ret, 8, "\\ufffd");
    if (n == 2 && (unsigned char)value[0] == 0xc2 && last < 0xa0)
        return (size_t)snprintf(ret, 8, "\\u%04x", last);
    return escape((unsigned char)*value, ret);
}

void gb_json_put_untrusted(struct gb_json_writer *out, const char *key, const char *value, size_t max) {
    char text[8];

    put_key(out, key);
    put(out, "\"", 1);
    while (*value) {
        size_t n = gb_utf8_len(value);
        size_t escaped = escape_untrusted(value, n, text);
        size_t written = escaped > 0 ? escaped : n;

        if (written > max)
            break;
        put(out, escaped > 0 ? text : value, written);
        max -= written;
        value += n > 0 ? n : 1;
    }
    put(out, "\"", 1);
}

void gb_json_put_members(struct gb_json_writer *out, const char *members, size_t n) {
    put(out, members, n);
    out->comma = true;
}

void gb_json_open_named(struct gb_json_writer *out, const char *name, char bracket) {
    put_key(out, NULL);
    put_text(out, name);
    put(out, ":", 1);
    put(out, &bracket, 1);
    out->comma = false;
}

void gb_json_put_u64(struct gb_json_writer *out, const char *key, uint64_t value) {
    char digits[GB_DIGITS_MAX];

    if (value > INT64_MAX) /* sums may be larger, and many readers fail at a larger number */
        value = INT64_MAX;
    put_value(out, key, digits, (size_t)(gb_digits(digits, value) - digits));
}

void gb_json_put_i64(struct gb_json_writer *out, const char *key, int64_t value) {
    char digits[GB_DIGITS_MAX + 1];
    char *at = digits;

    if (value < 0)
        *at++ = '-';
    at = gb_digits(at, value < 0 ? 0 - (uint64_t)value : (uint64_t)value);
    put_value(out, key, digits, (size_t)(at - digits));
}

void gb_json_put_bool(struct gb_json_writer *out, const char *key, bool value) {
    gb_json_put_raw(out, key, value ? "true" : "false");
}

void gb_json_put_null(struct gb_json_writer *out, const char *key) {
    gb_json_put_raw(out, key, "null");
}

void gb_json_put_limit(struct gb_json_writer *out, const char *key, uint64_t value) {
    if (value == UINT64_MAX)
        gb_json_put_null(out, key);
    else
        gb_json_put_u64(out, key, value);
}

void gb_json_put_number(struct gb_json_writer *out, const char *key, double value) {
    char digits[40];

    snprintf(digits, sizeof(digits), "%.15g", value);
    gb_json_put_raw(out, key, digits);
}

void gb_json_put_seconds(struct gb_json_writer *out, const char *key, uint64_t ns) {
    char digits[GB_DIGITS_MAX + 10];
    char *at = gb_digits(digits, ns / (uint64_t)GB_NS_PER_S);

    *at++ = '.';
    at = gb_digits_padded(at, ns % (uint64_t)GB_NS_PER_S, 9);
    put_value(out, key, digits, (size_t)(at - digits));
}

void gb_json_put_time(struct gb_json_writer *out, const char *key, int64_t wall_us) {
    char text[GB_RFC3339_SIZE + 1] = "\"";
    size_t n = 1 + strlen(gb_rfc3339(wall_us, text + 1));

    text[n++] = '"';
    put_value(out, key, text, n);
}

void gb_json_put_time_or_null(struct gb_json_writer *out, const char *key, int64_t wall_us) {
    if (wall_us > 0)
        gb_json_put_time(out, key, wall_us);
    else
        gb_json_put_null(out, key);
}

void gb_json_end(struct gb_json_writer *out) {
    put(out, "\n", 1);
}
