/* RFC 9457 problem documents. Written by hand, because this layer has no JSON library and the shape is fixed. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/escape.h"
#include "http/http.h"

struct text {
    char *s;
    size_t used;
    size_t size;
};

static void add(struct text *t, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

static void add(struct text *t, const char *fmt, ...) {
    va_list ap;
    int n;

    va_start(ap, fmt);
    n = vsnprintf(t->s + t->used, t->size - t->used, fmt, ap);
    va_end(ap);
    if (n > 0)
        t->used += (size_t)n < t->size - t->used ? (size_t)n : t->size - t->used - 1;
}

static void add_string(struct text *t, const char *s, size_t max) {
    const unsigned char *at = (const unsigned char *)s;
    const unsigned char *end = at + max;

    add(t, "\"");
    while (*at && at < end) {
        size_t n = gb_utf8_len((const char *)at);

        if (n == 0)
            add(t, "\\ufffd");
        else if (*at == '"' || *at == '\\')
            add(t, "\\%c", *at);
        else if (*at < 0x20 || *at == 0x7f)
            add(t, "\\u%04x", *at);
        else
            add(t, "%.*s", (int)n, (const char *)at);
        at += n ? n : 1;
    }
    add(t, "\"");
}

static void add_member(struct text *t, const char *key, const char *value, size_t max) {
    add(t, ", \"%s\": ", key);
    add_string(t, value, max);
}

static void write_document(struct text *t, const struct gb_http_request *request,
                           const struct gb_http_response *response, const struct gb_error *error) {
    if (response->problem_type)
        add(t, "{\"type\": \"%s\"", response->problem_type);
    else
        add(t, "{\"type\": \"urn:gpubuf:error:%s\"", gb_code_slug(error->code));
    add_member(t, "title", gb_code_title(error->code), 200);
    add(t, ", \"status\": %d", gb_code_status(error->code));
    add_member(t, "detail", error->detail, sizeof(error->detail));
    add_member(t, "instance", request->target.s, 300);
    add_member(t, "code", gb_code_slug(error->code), 64);
    add(t, ", \"retryable\": %s", gb_error_retryable(error) ? "true" : "false");
    add_member(t, "request_id", request->id, sizeof(request->id));
    if (error->has_numbers)
        add(t, ", \"limit_bytes\": %llu, \"used_bytes\": %llu, \"requested_bytes\": %llu",
            (unsigned long long)error->limit_bytes, (unsigned long long)error->used_bytes,
            (unsigned long long)error->requested_bytes);
    if (error->native_domain[0]) {
        /* The host backend reports what CUDA would, in the same member. */
        bool device = strcmp(error->native_domain, "cuda") == 0 || strcmp(error->native_domain, "host") == 0;

        add(t, ", \"%s\": {\"name\": ", device ? "cuda" : "native");
        add_string(t, error->native_name, sizeof(error->native_name));
        add(t, ", \"code\": %d", error->native_code);
        add_member(t, "call", error->call, sizeof(error->call));
        add_member(t, "domain", error->native_domain, sizeof(error->native_domain));
        add(t, "}");
    }
    if (response->problem_members)
        add(t, "%.*s", (int)response->problem_members_len, response->problem_members);
    add(t, "}\n");
}

void gb_http_problem(struct gb_http_response *response, const struct gb_http_request *request,
                     const struct gb_error *error) {
    struct text t = {.size = 4096 + response->problem_members_len};

    free(response->body);
    response->body = NULL;
    response->body_len = 0;
    gb_http_response_close(response);
    gb_http_response_canned(response, NULL);
    gb_http_response_source(response, NULL, 0);
    response->status = gb_code_status(error->code);
    if (response->status == 401)
        gb_http_response_header(response, NULL, "WWW-Authenticate", "Bearer realm=\"gpubufd\"");
    if (response->status == 503 || error->code == GB_ERR_BUFFER_BUSY || error->code == GB_ERR_UPLOAD_BUSY ||
        error->code == GB_ERR_KEY_IN_USE)
        gb_http_response_header(response, NULL, "Retry-After", "1");
    /* Without memory for the text the status still goes out. */
    t.s = malloc(t.size);
    if (!t.s)
        return;
    write_document(&t, request, response, error);
    gb_http_response_problem(response, NULL, NULL, 0);
    gb_http_response_header(response, NULL, "Content-Type", "application/problem+json");
    gb_http_response_header(response, NULL, "Cache-Control", "no-store");
    gb_http_response_take(response, t.s, t.used);
}
