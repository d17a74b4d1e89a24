#include "format/json_writer.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "model/model.h"

void gb_json_done(struct gb_json_writer *out) {
    free(out->s);
    *out = (struct gb_json_writer){0};
}

/* Room for n more bytes, or NULL. */
static char *reserve(struct gb_json_writer *out, size_t n) {
    size_t size = out->size ? out->size : 512;
    char *bigger;

    if (out->failed)
        return NULL;
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

/* In quotes, with escapes. */
static void put_text(struct gb_json_writer *out, const char *value) {
    const char *plain = value;
    char escape[8];

    put(out, "\"", 1);
    for (; *value; value++) {
        unsigned char c = (unsigned char)*value;

        if (c >= 0x20 && c != '"' && c != '\\' && c != 0x7f)
            continue;
        put(out, plain, (size_t)(value - plain));
        plain = value + 1;
        if (c == '"' || c == '\\')
            snprintf(escape, sizeof(escape), "\\%c", c);
        else
            snprintf(escape, sizeof(escape), "\\u%04x", c);
        put(out, escape, strlen(escape));
    }
    put(out, plain, (size_t)(value - plain));
    put(out, "\"", 1);
}

void gb_json_put_string(struct gb_json_writer *out, const char *key, const char *value) {
    put_key(out, key);
    put_text(out, value);
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
    if (value == GB_UNLIMITED)
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
