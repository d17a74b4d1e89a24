/* The one error value: set once, kept at its first setting, moved and completed by native errors. The facts of a code
 * come from errors.def. All folders call it; no function here takes a lock. */
#include "base/error.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

struct fact {
    const char *slug;
    const char *title;
    int status;
    bool retryable;
};

static const struct fact facts[GB_CODE_COUNT] = {
    [GB_OK] = {"ok", "No error", 200, false},
#define GB_ERROR(symbol, slug, status, retryable, title) [GB_ERR_##symbol] = {#slug, title, status, retryable},
#include <gpubuf/errors.def>
#undef GB_ERROR
};

static const struct fact *fact_of(enum gb_code code) {
    if ((unsigned)code >= GB_CODE_COUNT)
        code = GB_ERR_INTERNAL;
    return &facts[code];
}

int gb_error_set(struct gb_error *err, enum gb_code code, const char *fmt, ...) {
    va_list ap;

    if (!err || err->code != GB_OK)
        return -1;
    err->code = code;
    va_start(ap, fmt);
    vsnprintf(err->detail, sizeof(err->detail), fmt, ap);
    va_end(ap);
    return -1;
}

int gb_error_memory(struct gb_error *err, const char *what) {
    return gb_error_set(err, GB_ERR_SATURATED, "no memory for the %s; try again later", what);
}

int gb_error_move(struct gb_error *err, const struct gb_error *from) {
    if (err && err->code == GB_OK)
        *err = *from;
    return -1;
}

void gb_error_append(struct gb_error *err, enum gb_code code, const char *text) {
    if (err && err->code == code)
        strncat(err->detail, text, sizeof(err->detail) - strlen(err->detail) - 1);
}

void gb_error_native(struct gb_error *err, const char *domain, int number, const char *name, const char *call) {
    gb_error_native_text(err, domain, number, name, call, NULL);
}

void gb_error_native_text(struct gb_error *err, const char *domain, int number, const char *name, const char *call,
                          const char *text) {
    if (!err || err->native_domain[0] != '\0')
        return;
    err->native_code = number;
    err->native_text = text;
    snprintf(err->native_domain, sizeof(err->native_domain), "%s", domain);
    snprintf(err->native_name, sizeof(err->native_name), "%s", name ? name : "unknown");
    snprintf(err->call, sizeof(err->call), "%s", call);
}

int gb_error_errno(struct gb_error *err, enum gb_code code, const char *call, int errnum) {
    const char *name = strerrorname_np(errnum);

    if (!err || err->code != GB_OK)
        return -1;
    gb_error_native(err, "errno", errnum, name ? name : "unknown", call);
    return gb_error_set(err, code, "%s: %s", call, strerrordesc_np(errnum) ? strerrordesc_np(errnum) : "unknown error");
}

void gb_error_numbers(struct gb_error *err, uint64_t limit_bytes, uint64_t used_bytes, uint64_t requested_bytes) {
    if (!err || err->has_numbers)
        return;
    err->has_numbers = true;
    err->limit_bytes = limit_bytes;
    err->used_bytes = used_bytes;
    err->requested_bytes = requested_bytes;
}

const char *gb_code_slug(enum gb_code code) {
    return fact_of(code)->slug;
}

const char *gb_code_title(enum gb_code code) {
    return fact_of(code)->title;
}

int gb_code_status(enum gb_code code) {
    return fact_of(code)->status;
}

bool gb_code_retryable(enum gb_code code) {
    return fact_of(code)->retryable;
}

bool gb_error_retryable(const struct gb_error *err) {
    if (err->hopeless)
        return false;
    if (err->code == GB_ERR_OUT_OF_MEMORY && err->has_numbers && err->requested_bytes > err->limit_bytes)
        return false;
    return gb_code_retryable(err->code);
}
