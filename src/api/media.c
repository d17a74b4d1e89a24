#include "api/media.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "model/word.h"

/* The length of the type itself, without parameters. */
static size_t type_len(const char *value) {
    size_t n = strcspn(value, ";,");

    while (n > 0 && (value[n - 1] == ' ' || value[n - 1] == '\t'))
        n--;
    return n;
}

static bool is(const char *value, size_t n, const char *type) {
    return strlen(type) == n && strncasecmp(value, type, n) == 0;
}

static int refused(const char *header, const char *value, const char *permitted, struct gb_error *err) {
    char quoted[GB_WORD_QUOTE_SIZE];

    return gb_error_set(err, GB_ERR_UNSUPPORTED_MEDIA_TYPE, "the %s \"%s\" is not supported here; send %s", header,
                        gb_word_quote(value, strlen(value), quoted), permitted);
}

int gb_media_json(const char *content_type, struct gb_error *err) {
    size_t n = content_type ? type_len(content_type) : 0;

    if (!content_type || is(content_type, n, "application/json") ||
        is(content_type, n, "application/x-www-form-urlencoded"))
        return 0;
    if (n > 5 && strncasecmp(content_type + n - 5, "+json", 5) == 0)
        return 0;
    return refused("Content-Type", content_type, "application/json", err);
}

int gb_media_tensor(const char *content_type, bool *ret_npy, struct gb_error *err) {
    size_t n = content_type ? type_len(content_type) : 0;
    bool npy = content_type && is(content_type, n, GB_MEDIA_NPY);

    if (content_type && !npy && !is(content_type, n, GB_MEDIA_RAW) &&
        !is(content_type, n, "application/x-www-form-urlencoded"))
        return refused("Content-Type", content_type, GB_MEDIA_RAW " or " GB_MEDIA_NPY, err);
    *ret_npy = npy;
    return 0;
}

int gb_media_encoding(const char *content_encoding, struct gb_error *err) {
    if (!content_encoding || is(content_encoding, type_len(content_encoding), "identity"))
        return 0;
    return refused("Content-Encoding", content_encoding, "the bytes as they are", err);
}

/* --- Accept ------------------------------------------------------------------------------------------------------- */

/* How much a client wants one type: q in thousandths and how precisely the type was named. */
struct wish {
    int q;
    int precision; /* 0: not mentioned, 1: * / *, 2: application / *, 3: by name */
};

/* The weight among the parameters params[0..n), in thousandths; what cannot be read counts as 1. */
static int weight(const char *params, size_t n) {
    const char *end = params + n;
    const char *at = params;
    int q = 0;
    int unit = 100;

    while (at < end && (at = memchr(at, ';', (size_t)(end - at)))) {
        at++;
        while (at < end && (*at == ' ' || *at == '\t'))
            at++;
        if (end - at < 3 || strncasecmp(at, "q=", 2) != 0)
            continue;
        at += 2;
        if (*at != '0')
            return 1000;
        for (at++; at < end && (*at == '.' || (*at >= '0' && *at <= '9')); at++) {
            if (*at == '.')
                continue;
            q += (*at - '0') * unit;
            unit /= 10;
        }
        return q;
    }
    return 1000;
}

static void wish_for(struct wish *wish, const char *type, const char *element, size_t type_n, int q) {
    int precision = is(element, type_n, type)              ? 3
                    : is(element, type_n, "application/*") ? 2
                    : is(element, type_n, "*/*")           ? 1
                                                           : 0;

    if (precision > wish->precision)
        *wish = (struct wish){.q = q, .precision = precision};
}

int gb_media_accept(const char *accept, bool npy_exists, bool *ret_npy, struct gb_error *err) {
    struct wish raw = {0};
    struct wish npy = {0};
    const char *at = accept;

    if (!accept || accept[strspn(accept, " \t")] == '\0') {
        *ret_npy = false;
        return 0;
    }
    while (*at) {
        size_t n;
        size_t type_n;
        int q;

        at += strspn(at, ", \t");
        n = strcspn(at, ",");
        type_n = type_len(at);
        q = type_n < n ? weight(at + type_n, n - type_n) : 1000;
        wish_for(&raw, GB_MEDIA_RAW, at, type_n, q);
        wish_for(&npy, GB_MEDIA_NPY, at, type_n, q);
        at += n;
    }
    if (npy.q > 0 && !npy_exists && raw.q == 0)
        return gb_error_set(err, GB_ERR_NOT_ACCEPTABLE,
                            "numpy has no such dtype; ask for the raw bytes with Accept: %s or ?format=raw",
                            GB_MEDIA_RAW);
    if (npy.q == 0 && raw.q == 0)
        return gb_error_set(err, GB_ERR_NOT_ACCEPTABLE, "the data can be had as %s or %s", GB_MEDIA_RAW, GB_MEDIA_NPY);
    *ret_npy = npy_exists && (npy.q > raw.q || (npy.q > 0 && npy.q == raw.q && npy.precision > raw.precision));
    return 0;
}
