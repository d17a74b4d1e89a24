#include "client/read.h"

#include <stdlib.h>
#include <string.h>

#include "base/encoding.h"
#include "client/text.h"

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
