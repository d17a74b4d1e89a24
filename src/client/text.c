/* Bytes that grow, escapes of URLs, and values read out of JSON. The first append that fails for want of memory is
 * kept in the text, so that a request is checked once at its end. All files of the folder call it. */
#include "client/text.h"

#include <gpubuf/gpubuf.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/encoding.h"

void gbc_text_done(struct gbc_text *text) {
    free(text->data);
    *text = (struct gbc_text){.data = NULL};
}

void gbc_text_clear(struct gbc_text *text) {
    text->bytes = 0;
    text->failed = false;
    if (text->data)
        text->data[0] = '\0';
}

static bool reserve(struct gbc_text *text, size_t bytes) {
    size_t room = text->room ? text->room : 256;
    char *data;

    if (bytes < text->room - text->bytes && text->room > 0)
        return true;
    while (room - text->bytes <= bytes) {
        if (room > SIZE_MAX / 2)
            return false;
        room *= 2;
    }
    data = realloc(text->data, room);
    if (!data)
        return false;
    text->data = data;
    text->room = room;
    return true;
}

void gbc_text_add(struct gbc_text *text, const void *data, size_t bytes) {
    if (text->failed || !reserve(text, bytes)) {
        text->failed = true;
        return;
    }
    if (bytes > 0)
        memcpy(text->data + text->bytes, data, bytes);
    text->bytes += bytes;
    text->data[text->bytes] = '\0';
}

void gbc_text_addf(struct gbc_text *text, const char *fmt, ...) {
    va_list ap;
    char *made;
    int n;

    va_start(ap, fmt);
    n = vasprintf(&made, fmt, ap);
    va_end(ap);
    if (n < 0) {
        text->failed = true;
        return;
    }
    gbc_text_add(text, made, (size_t)n);
    free(made);
}

static bool unreserved(unsigned char c) {
    return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || strchr("-._~,:", c);
}

void gbc_text_escape(struct gbc_text *text, const char *plain) {
    for (; *plain != '\0'; plain++) {
        unsigned char c = (unsigned char)*plain;

        if (unreserved(c))
            gbc_text_add(text, plain, 1);
        else
            gbc_text_addf(text, "%%%02X", c);
    }
}

void gbc_copy(char *out, size_t size, const char *plain) {
    size_t n = plain ? strnlen(plain, size - 1) : 0;

    if (n > 0)
        memcpy(out, plain, n);
    out[n] = '\0';
}

int gpubuf_escape(const char *text, char *ret, size_t size) {
    struct gbc_text out = {.data = NULL};
    int r = -1;

    gbc_text_escape(&out, text);
    if (!out.failed && out.bytes < size) {
        gbc_copy(ret, size, out.data);
        r = 0;
    }
    gbc_text_done(&out);
    return r;
}

/* --- JSON --------------------------------------------------------------------------------------------------------- */

void gbc_read_text(const json_t *object, const char *key, char *ret, size_t size) {
    gbc_copy(ret, size, json_string_value(json_object_get(object, key)));
}

static uint64_t number(const json_t *value) {
    json_int_t n = json_integer_value(value);

    return n > 0 ? (uint64_t)n : 0;
}

uint64_t gbc_read_u64(const json_t *object, const char *key) {
    return number(json_object_get(object, key));
}

bool gbc_read_bool(const json_t *object, const char *key) {
    return json_is_true(json_object_get(object, key));
}

struct gpubuf_opt gbc_read_opt(const json_t *object, const char *key) {
    const json_t *value = json_object_get(object, key);
    struct gpubuf_opt opt = {json_is_integer(value), number(value)};

    return opt;
}

struct gpubuf_opt gbc_read_crc(const json_t *object, const char *key) {
    const char *text = json_string_value(json_object_get(object, key));
    struct gpubuf_opt opt = {false, 0};
    uint32_t crc;

    return text && gb_hex_u32(text, strlen(text), &crc) ? gpubuf_some(crc) : opt;
}

bool gbc_read_handle(const json_t *value, unsigned char ret[GBC_HANDLE_BYTES]) {
    return gb_base64_exact(json_string_value(value), json_string_length(value), ret, GBC_HANDLE_BYTES);
}

unsigned gbc_read_shape(const json_t *object, uint64_t ret[GPUBUF_DIMS_MAX]) {
    const json_t *shape = json_object_get(object, "shape");
    unsigned n = 0;

    while (n < GPUBUF_DIMS_MAX && n < json_array_size(shape)) {
        ret[n] = number(json_array_get(shape, n));
        n++;
    }
    return n;
}

void gbc_read_device(const json_t *object, struct gpubuf_device_id *ret) {
    ret->index = (int)json_integer_value(json_object_get(object, "index"));
    gbc_read_text(object, "uuid", ret->uuid, sizeof(ret->uuid));
}

int gbc_record_buffer(const json_t *o, void *ret) {
    struct gpubuf_opt crc = gbc_read_crc(o, "crc32c");
    struct gpubuf_buffer *r = ret;

    memset(r, 0, sizeof(*r));
    gbc_read_text(o, "name", r->name, sizeof(r->name));
    gbc_read_text(o, "session", r->session, sizeof(r->session));
    r->bytes = gbc_read_u64(o, "bytes");
    gbc_read_text(o, "dtype", r->dtype, sizeof(r->dtype));
    r->ndim = gbc_read_shape(o, r->shape);
    gbc_read_text(o, "kind", r->kind, sizeof(r->kind));
    r->generation = gbc_read_u64(o, "generation");
    r->has_crc32c = crc.set;
    r->crc32c = (uint32_t)crc.value;
    return r->name[0] != '\0' ? 0 : -1;
}
