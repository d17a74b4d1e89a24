#include "base/json_writer.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/escape.h"

struct gb_json_writer gb_json_fixed(char *s, size_t size) {
    return (struct gb_json_writer){.s = s, .size = size, .fixed = true};
}

void gb_json_done(struct gb_json_writer *out) {
    if (!out->fixed)
        free(out->s);
    *out = (struct gb_json_writer){0};
}

/* Room for n more bytes, or NULL. */
static char *reserve(struct gb_json_writer *out, size_t n) {
    size_t size = out->size ? out->size : 512;
    char *bigger;

    if (out->failed)
        return NULL;
    if (out->fixed && size - out->used < n) {
        out->failed = true;
        return NULL;
    }
    while (size - out->used < n)
        size *= 2;
    if (size > out->size) {
        bigger = realloc(out->s, size);
        if (!bigger) {
            out->failed = true;
            return NULL;
        }
        out->s = bigger;
        out->size = size;
    }
    return out->s + out->used;
}

static void put(struct gb_json_writer *out, const char *s, size_t n) {
    char *at = reserve(out, n);

    if (!at)
        return;
    memcpy(at, s, n);
    out->used += n;
}

static void put_key(struct gb_json_writer *out, const char *key) {
    if (out->comma)
        put(out, ",", 1);
    out->comma = true;
    if (!key)
        return;
    put(out, "\"", 1);
    put(out, key, strlen(key));
    put(out, "\":", 2);
}

void gb_json_put_text(struct gb_json_writer *out, const char *text) {
    put(out, text, strlen(text));
    out->comma = false;
}

void gb_json_open(struct gb_json_writer *out, const char *key, char bracket) {
    put_key(out, key);
    put(out, &bracket, 1);
    out->comma = false;
}

void gb_json_close(struct gb_json_writer *out, char bracket) {
    put(out, &bracket, 1);
    out->comma = true;
}

void gb_json_put_raw(struct gb_json_writer *out, const char *key, const char *json) {
    put_key(out, key);
    put(out, json, strlen(json));
}

/* The escape of a character that may not stand between quotes as it is; 0: it may. */
static size_t escape(unsigned char c, char ret[8]) {
    if (c >= 0x20 && c != '"' && c != '\\' && c != 0x7f)
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

void gb_json_put_string(struct gb_json_writer *out, const char *key, const char *value) {
    put_key(out, key);
    put_text(out, value);
}

void gb_json_put_untrusted(struct gb_json_writer *out, const char *key, const char *value, size_t max) {
    char text[8];

    put_key(out, key);
    put(out, "\"", 1);
    while (*value) {
        size_t n = gb_utf8_len(value);
        size_t escaped = n > 0 ? escape((unsigned char)*value, text) : (size_t)snprintf(text, sizeof(text), "\\ufffd");
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
    char digits[24];
    char *at = digits + sizeof(digits);

    if (value > INT64_MAX) /* sums may come to more, and many readers fail at a larger number */
        value = INT64_MAX;
    *--at = '\0';
    do {
        *--at = (char)('0' + value % 10);
        value /= 10;
    } while (value > 0);
    gb_json_put_raw(out, key, at);
}

void gb_json_put_i64(struct gb_json_writer *out, const char *key, int64_t value) {
    char digits[24];

    snprintf(digits, sizeof(digits), "%" PRId64, value);
    gb_json_put_raw(out, key, digits);
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
    char digits[40];

    snprintf(digits, sizeof(digits), "%" PRIu64 ".%09" PRIu64, ns / (uint64_t)GB_NS_PER_S, ns % (uint64_t)GB_NS_PER_S);
    gb_json_put_raw(out, key, digits);
}

void gb_json_put_time(struct gb_json_writer *out, const char *key, int64_t wall_us) {
    char text[GB_RFC3339_SIZE];

    gb_json_put_string(out, key, gb_rfc3339(wall_us, text));
}

void gb_json_end(struct gb_json_writer *out) {
    put(out, "\n", 1);
}
