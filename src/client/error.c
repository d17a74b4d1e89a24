/* The caller's error, from what went wrong here (errno, memory, a sentence) or from a problem document. A code of
 * include/gpubuf/errors.def gives slug and retryability; a code that this library does not know is UNKNOWN_PROBLEM
 * with the slug that came. All files of the folder call it. */
#include "client/error.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "client/text.h"

struct fact {
    const char *slug;
    const char *title;
    int code;
    bool retryable;
};

static const struct fact server[] = {
#define GB_ERROR(symbol, slug, status, retryable, title) {#slug, title, GPUBUF_##symbol, retryable},
#include <gpubuf/errors.def>
#undef GB_ERROR
};

static const struct fact own[] = {
    {"cannot_connect", "The daemon cannot be reached", GPUBUF_CANNOT_CONNECT, true},
    {"connection_lost", "The connection ended before the answer did", GPUBUF_CONNECTION_LOST, true},
    {"client_timeout", "No answer in the permitted time", GPUBUF_CLIENT_TIMEOUT, true},
    {"bad_answer", "The answer is not a gpubufd's", GPUBUF_BAD_ANSWER, false},
    {"bad_argument", "The call is wrong", GPUBUF_BAD_ARGUMENT, false},
    {"interrupted", "Interrupted", GPUBUF_INTERRUPTED, true},
    {"input_failed", "The bytes to be sent cannot be read", GPUBUF_INPUT_FAILED, false},
    {"output_failed", "The bytes that came cannot be written", GPUBUF_OUTPUT_FAILED, false},
    {"check_failed", "The checksums differ", GPUBUF_CHECK_FAILED, true},
    {"no_memory", "This process has no memory left", GPUBUF_NO_MEMORY, true},
    {"cannot_map", "This process cannot map the buffer", GPUBUF_CANNOT_MAP, false},
    {"unknown_problem", "A problem that this library does not know", GPUBUF_UNKNOWN_PROBLEM, false},
    {"tls_failed", "No trusted connection by TLS", GPUBUF_TLS_FAILED, false},
    {"ok", "No error", GPUBUF_OK, false},
};

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

static const struct fact *fact_of(int code) {
    size_t i;

    if (code > 0 && (size_t)code <= COUNT(server))
        return &server[code - 1];
    for (i = 0; i < COUNT(own); i++) {
        if (own[i].code == code)
            return &own[i];
    }
    return &own[COUNT(own) - 3];
}

const char *gpubuf_code_slug(int code) {
    return fact_of(code)->slug;
}

int gpubuf_code_find(const char *slug) {
    size_t i;

    for (i = 0; slug && i < COUNT(server); i++) {
        if (strcmp(server[i].slug, slug) == 0)
            return server[i].code;
    }
    for (i = 0; slug && i < COUNT(own); i++) {
        if (strcmp(own[i].slug, slug) == 0)
            return own[i].code;
    }
    return GPUBUF_UNKNOWN_PROBLEM;
}

void gbc_error_init(struct gpubuf_error *err) {
    if (!err)
        return;
    memset(err, 0, sizeof(*err));
    gbc_copy(err->slug, sizeof(err->slug), "ok");
}

static void take_fact(struct gpubuf_error *err, int code) {
    const struct fact *fact = fact_of(code);

    err->code = code;
    err->retryable = fact->retryable;
    gbc_copy(err->slug, sizeof(err->slug), fact->slug);
    gbc_copy(err->title, sizeof(err->title), fact->title);
}

int gbc_error_set(struct gpubuf_error *err, int code, const char *fmt, ...) {
    va_list ap;

    if (!err || err->code != GPUBUF_OK)
        return -1;
    take_fact(err, code);
    va_start(ap, fmt);
    vsnprintf(err->detail, sizeof(err->detail), fmt, ap);
    va_end(ap);
    return -1;
}

int gbc_error_errno(struct gpubuf_error *err, int code, const char *call, int number) {
    char text[128];

    if (!err || err->code != GPUBUF_OK)
        return -1;
    gbc_error_set(err, code, "%s: %s", call, strerror_r(number, text, sizeof(text)));
    gbc_copy(err->native_domain, sizeof(err->native_domain), "errno");
    gbc_copy(err->native_name, sizeof(err->native_name), strerrorname_np(number));
    gbc_copy(err->native_call, sizeof(err->native_call), call);
    err->native_code = number;
    return -1;
}

int gbc_error_memory(struct gpubuf_error *err) {
    return gbc_error_set(err, GPUBUF_NO_MEMORY, "this process has no memory left");
}

static void take_native(struct gpubuf_error *err, const json_t *native) {
    if (!json_is_object(native))
        return;
    gbc_read_text(native, "domain", err->native_domain, sizeof(err->native_domain));
    gbc_read_text(native, "name", err->native_name, sizeof(err->native_name));
    gbc_read_text(native, "call", err->native_call, sizeof(err->native_call));
    gbc_read_text(native, "message", err->native_message, sizeof(err->native_message));
    err->native_code = (int)json_integer_value(json_object_get(native, "code"));
}

bool gbc_error_json(struct gpubuf_error *err, const json_t *problem) {
    const char *slug = json_string_value(json_object_get(problem, "code"));
    const json_t *retryable = json_object_get(problem, "retryable");
    const json_t *native = json_object_get(problem, "cuda");

    if (!slug || !json_is_integer(json_object_get(problem, "status")))
        return false;
    if (!err || err->code != GPUBUF_OK)
        return true;
    take_fact(err, gpubuf_code_find(slug));
    gbc_read_text(problem, "code", err->slug, sizeof(err->slug));
    if (json_is_string(json_object_get(problem, "title")))
        gbc_read_text(problem, "title", err->title, sizeof(err->title));
    gbc_read_text(problem, "detail", err->detail, sizeof(err->detail));
    if (err->detail[0] == '\0')
        gbc_copy(err->detail, sizeof(err->detail), err->title);
    gbc_read_text(problem, "request_id", err->request_id, sizeof(err->request_id));
    err->status = (int)json_integer_value(json_object_get(problem, "status"));
    if (json_is_boolean(retryable))
        err->retryable = json_is_true(retryable);
    take_native(err, native ? native : json_object_get(problem, "native"));
    err->has_numbers = json_object_get(problem, "limit_bytes") || json_object_get(problem, "requested_bytes");
    err->limit_bytes = gbc_read_u64(problem, "limit_bytes");
    err->used_bytes = gbc_read_u64(problem, "used_bytes");
    err->requested_bytes = gbc_read_u64(problem, "requested_bytes");
    return true;
}

int gbc_error_problem(struct gpubuf_error *err, int status, const char *text, size_t bytes) {
    json_t *problem = bytes > 0 ? json_loadb(text, bytes, 0, NULL) : NULL;
    bool told = gbc_error_json(err, problem);

    if (!told && status == 413) {
        gbc_error_set(err, GPUBUF_BODY_TOO_LARGE,
                      "the answer has the status 413 and is not a gpubufd's: a proxy in between bounds the size of "
                      "bodies (of nginx: client_max_body_size)");
    } else if (!told) {
        gbc_error_set(err, GPUBUF_BAD_ANSWER,
                      "the answer has the status %d and does not say why; is a gpubufd behind this address?", status);
        if (err && err->code == GPUBUF_BAD_ANSWER)
            err->retryable = status == 429 || status == 502 || status == 503 || status == 504;
    }
    json_decref(problem);
    if (err && err->status == 0)
        err->status = status;
    return -1;
}
