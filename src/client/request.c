/* How requests are put together. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/client.h"

void gbc_request_init(struct gbc_request *request, const char *method, const char *path, ...) {
    va_list names;

    memset(request, 0, sizeof(*request));
    gbc_error_init(&request->wrong);
    request->method = method;
    va_start(names, path);
    for (; *path != '\0'; path++) {
        const char *name;

        if (*path != '%') {
            gbc_text_add(&request->target, path, 1);
            continue;
        }
        name = va_arg(names, const char *);
        if (!name || name[0] == '\0')
            gbc_error_set(&request->wrong, GPUBUF_BAD_ARGUMENT, "a name is missing: none may be NULL or empty");
        else if (strspn(name, ".") == strlen(name)) /* "." and ".." mean another path */
            gbc_error_set(&request->wrong, GPUBUF_BAD_ARGUMENT, "\"%s\" is no name", name);
        else
            gbc_text_escape(&request->target, name);
    }
    va_end(names);
}

void gbc_request_done(struct gbc_request *request) {
    gbc_text_done(&request->target);
    gbc_text_done(&request->headers);
    gbc_text_done(&request->json);
}

void gbc_query(struct gbc_request *request, const char *key, const char *value) {
    bool first = !request->target.data || !strchr(request->target.data, '?');

    if (!value)
        return;
    gbc_text_addf(&request->target, "%c%s=", first ? '?' : '&', key);
    gbc_text_escape(&request->target, value);
}

void gbc_query_u64(struct gbc_request *request, const char *key, uint64_t value) {
    char text[24];

    snprintf(text, sizeof(text), "%llu", (unsigned long long)value);
    gbc_query(request, key, text);
}

void gbc_query_true(struct gbc_request *request, const char *key, bool value) {
    gbc_query(request, key, value ? "true" : NULL);
}

void gbc_header(struct gbc_request *request, const char *name, const char *value) {
    if (!value)
        return;
    if (strpbrk(value, "\r\n")) {
        gbc_error_set(&request->wrong, GPUBUF_BAD_ARGUMENT, "%s: a header has one line", name);
        return;
    }
    gbc_text_addf(&request->headers, "%s: %s", name, value);
    gbc_text_add(&request->headers, "", 1);
}

void gbc_how(struct gbc_request *request, const struct gpubuf_how *how) {
    char prefer[64];

    if (!how)
        return;
    gbc_header(request, "If-Match", how->if_match);
    gbc_header(request, "If-None-Match", how->if_none_match);
    gbc_header(request, "Idempotency-Key", how->idempotency_key);
    request->conditional = how->if_match || how->if_none_match;
    request->keyed = how->idempotency_key != NULL;
    request->wait_s = how->wait_s;
    if (how->async && !how->ret_operation)
        gbc_error_set(&request->wrong, GPUBUF_BAD_ARGUMENT, "how.async needs how.ret_operation");
    if (how->wait_s > 0) {
        snprintf(prefer, sizeof(prefer), "wait=%u%s", (unsigned)how->wait_s, how->async ? ", respond-async" : "");
        gbc_header(request, "Prefer", prefer);
    } else if (how->async) {
        gbc_header(request, "Prefer", "respond-async");
    }
}

/* json_dumps() of jansson 2.14 leaves out a key if its buffer cannot grow. Texts in body are not known to be UTF-8:
 * what has no length a second time has such a text, and does not lack memory. */
char *gbc_json_text(const json_t *body, struct gpubuf_error *err) {
    size_t n = json_dumpb(body, NULL, 0, JSON_COMPACT);
    char *text = n > 0 ? malloc(n + 1) : NULL;

    if (text && json_dumpb(body, text, n, JSON_COMPACT) == n) {
        text[n] = '\0';
        return text;
    }
    free(text);
    if (body && n == 0 && json_dumpb(body, NULL, 0, JSON_COMPACT) == 0)
        gbc_error_set(err, GPUBUF_BAD_ARGUMENT, "a text of the request is not UTF-8");
    else
        gbc_error_memory(err);
    return NULL;
}

void gbc_json(struct gbc_request *request, json_t *body) {
    char *text = gbc_json_text(body, &request->wrong);

    if (text)
        gbc_text_add(&request->json, text, strlen(text));
    free(text);
    json_decref(body);
}

/* --- JSON --------------------------------------------------------------------------------------------------------- */

void gbc_put(struct gpubuf_error *wrong, json_t *object, const char *key, json_t *value) {
    if (json_object_set_new(object, key, value) < 0)
        gbc_error_memory(wrong);
}

void gbc_put_text(struct gpubuf_error *wrong, json_t *object, const char *key, const char *value) {
    if (value)
        gbc_put(wrong, object, key, json_string_nocheck(value));
}

void gbc_put_u64(struct gpubuf_error *wrong, json_t *object, const char *key, uint64_t value) {
    gbc_put(wrong, object, key, json_integer((json_int_t)value));
}

void gbc_put_true(struct gpubuf_error *wrong, json_t *object, const char *key, bool value) {
    if (value)
        gbc_put(wrong, object, key, json_true());
}

void gbc_put_device(struct gpubuf_error *wrong, json_t *object, const char *key, const char *device) {
    if (device && device[0] != '\0' && strspn(device, "0123456789") == strlen(device) && strlen(device) < 10)
        gbc_put(wrong, object, key, json_integer(atoi(device)));
    else
        gbc_put_text(wrong, object, key, device);
}

void gbc_add_text(struct gpubuf_error *wrong, json_t *array, const char *value) {
    if (json_array_append_new(array, json_string_nocheck(value)) < 0)
        gbc_error_memory(wrong);
}

/* The number there, and what follows its comma. False: there is no number. */
static bool next_dim(const char **at, json_int_t *ret) {
    char *end;
    unsigned long long n = strtoull(*at, &end, 10);

    if (**at < '0' || **at > '9' || (*end != ',' && *end != '\0') || (*end == ',' && end[1] == '\0'))
        return false;
    *ret = (json_int_t)n;
    *at = *end == ',' ? end + 1 : end;
    return true;
}

void gbc_put_shape(struct gpubuf_error *wrong, json_t *object, const char *key, const char *shape) {
    const char *at = shape;
    json_t *array;
    json_int_t n;

    if (!shape)
        return;
    array = json_array();
    while (*at != '\0' && next_dim(&at, &n)) {
        if (json_array_append_new(array, json_integer(n)) < 0)
            gbc_error_memory(wrong);
    }
    if (*at != '\0')
        gbc_error_set(wrong, GPUBUF_BAD_ARGUMENT, "\"%s\" is no shape: give numbers with commas, such as 2,3", shape);
    gbc_put(wrong, object, key, array);
}
