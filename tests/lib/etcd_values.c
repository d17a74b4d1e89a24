#include "etcd_values.h"

#include <check.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/encoding.h"

int64_t etcd_number(const json_t *object, const char *key) {
    const json_t *value = json_object_get(object, key);

    return json_is_string(value) ? strtoll(json_string_value(value), NULL, 10) : json_integer_value(value);
}

json_t *etcd_text(int64_t n) {
    return json_sprintf("%" PRId64, n);
}

json_t *etcd_base64(const char *value) {
    char *text = gb_base64(value, strlen(value), false);
    json_t *ret = json_string(text);

    free(text);
    return ret;
}

char *etcd_plain(const json_t *object, const char *key, size_t *bytes) {
    const char *text = json_string_value(json_object_get(object, key));
    char *ret = NULL;
    size_t n = 0;

    if (text)
        ck_assert(gb_base64_read(text, strlen(text), false, &ret, &n));
    if (bytes)
        *bytes = n;
    return ret;
}
