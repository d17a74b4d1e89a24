/* One error value: fixed size, owned by the caller, filled where the failure is detected. */
#ifndef GB_BASE_ERROR_H
#define GB_BASE_ERROR_H

#include <stdbool.h>
#include <stdint.h>

enum gb_code {
    GB_OK = 0,
#define GB_ERROR(symbol, slug, status, retryable, title) GB_ERR_##symbol,
#include <gpubuf/errors.def>
#undef GB_ERROR
    GB_CODE_COUNT
};

/* An error. `GB_ERROR_INIT` makes an empty one. The first error wins: setting an error that is already set changes
 * nothing. All strings are NUL-terminated and truncated to fit. */
struct gb_error {
    enum gb_code code;
    int native_code;         /* number in native_domain, meaningful when native_domain is not empty */
    char native_domain[8];   /* "cuda", "host", "sqlite", "errno" or "" */
    char native_name[48];    /* "cudaErrorMemoryAllocation", "SQLITE_FULL", "ENOSPC" */
    const char *native_text; /* static: "out of memory"; NULL: the native layer has no words for it */
    char call[48];           /* the call that failed: "cudaMallocFromPoolAsync" */
    char detail[384];        /* one sentence: what was wrong and what would be right */
    bool has_numbers;        /* the three below are meaningful */
    uint64_t limit_bytes;
    uint64_t used_bytes;
    uint64_t requested_bytes;
    bool hopeless; /* the same request never succeeds, although others with this code may */
};

#define GB_ERROR_INIT ((struct gb_error){.code = GB_OK})

/* Sets code and detail. Returns -1 always, so that callers can `return gb_error_set(...)`. err may be NULL. */
int gb_error_set(struct gb_error *err, enum gb_code code, const char *fmt, ...) __attribute__((format(printf, 3, 4)));

/* Sets SATURATED, "no memory for the request" if that is what. Returns -1 always. err may be NULL. */
int gb_error_memory(struct gb_error *err, const char *what);

/* Gives *err the value of *from, unless it is set already. Returns -1 always. err may be NULL. */
int gb_error_move(struct gb_error *err, const struct gb_error *from);

/* Appends text to the detail of an error of that code; any other stays as it is. err may be NULL. */
void gb_error_append(struct gb_error *err, enum gb_code code, const char *text);

/* Adds the native layer's error. It may come before or after gb_error_set, because it does not change code or
 * detail. */
void gb_error_native(struct gb_error *err, const char *domain, int number, const char *name, const char *call);

/* The same with the native layer's words for the number, which are not copied. text may be NULL. */
void gb_error_native_text(struct gb_error *err, const char *domain, int number, const char *name, const char *call,
                          const char *text);

/* Sets code and detail with errno's number and name. Returns -1. */
int gb_error_errno(struct gb_error *err, enum gb_code code, const char *call, int errnum);

void gb_error_numbers(struct gb_error *err, uint64_t limit_bytes, uint64_t used_bytes, uint64_t requested_bytes);

/* Facts from errors.def. Each accepts any value; unknown codes read as INTERNAL. */
const char *gb_code_slug(enum gb_code code);
const char *gb_code_title(enum gb_code code);
int gb_code_status(enum gb_code code);
bool gb_code_retryable(enum gb_code code);

/* Returns true if the same request may succeed later: by its code, unless the error is hopeless or asks for more than
 * exists. */
bool gb_error_retryable(const struct gb_error *err);

#endif
