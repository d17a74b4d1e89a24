#include "backend/native.h"

#include <string.h>

static const struct gb_native natives[] = {
#define GB_NATIVE(name, number, code, text) {#name, number, GB_ERR_##code, text},
#include "backend/native.def"
#undef GB_NATIVE
};

#define NATIVE_COUNT (sizeof(natives) / sizeof(natives[0]))

const struct gb_native *gb_native_by_number(int number) {
    size_t i;

    for (i = 0; i < NATIVE_COUNT; i++) {
        if (natives[i].number == number)
            return &natives[i];
    }
    return NULL;
}

const struct gb_native *gb_native_by_name(const char *name, size_t len) {
    size_t i;

    for (i = 0; i < NATIVE_COUNT; i++) {
        if (strlen(natives[i].name) == len && memcmp(natives[i].name, name, len) == 0)
            return &natives[i];
    }
    return NULL;
}

enum gb_code gb_native_code(int number) {
    const struct gb_native *native = gb_native_by_number(number);

    return native ? native->code : GB_ERR_DEVICE_ERROR;
}
