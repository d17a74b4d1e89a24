#include "api/request/media.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "base/text.h"

/* The length of the type without its parameters. */
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

    if (!content_type || is(content_type, n, GB_MEDIA_JSON) || is(content_type, n, GB_MEDIA_FORM))
        return 0;
    if (n > 5 && strncasecmp(content_type + n - 5, "+json", 5) == 0)
        return 0;
    return refused("Content-Type", content_type, GB_MEDIA_JSON, err);
}

int gb_media_bytes(const char *content_type, struct gb_error *err) {
    size_t n = content_type ? type_len(content_type) : 0;

    if (!content_type || (!is(content_type, n, GB_MEDIA_FORM) && !is(content_type, n, GB_MEDIA_FORM_PARTS)))
        return 0;
    return gb_error_set(err, GB_ERR_UNSUPPORTED_MEDIA_TYPE,
                        "a form (%.*s) does not have the bytes of a file as they are; send them with curl -T FILE, or "
                        "with the Content-Type " GB_MEDIA_RAW,
                        (int)n, content_type);
}

int gb_media_tensor(const char *content_type, enum gb_form *ret, struct gb_error *err) {
    size_t n = content_type ? type_len(content_type) : 0;

    if (gb_media_bytes(content_type, err) < 0)
        return -1;
    if (!content_type || is(content_type, n, GB_MEDIA_RAW))
        *ret = GB_FORM_RAW;
    else if (is(content_type, n, GB_MEDIA_NPY))
        *ret = GB_FORM_NPY;
    else if (is(content_type, n, GB_MEDIA_SAFETENSORS) || is(content_type, n, GB_MEDIA_SAFETENSORS_VENDOR))
        *ret = GB_FORM_SAFETENSORS;
    else
        return refused("Content-Type", content_type, GB_MEDIA_RAW ", " GB_MEDIA_NPY " or " GB_MEDIA_SAFETENSORS, err);
    return 0;
}

int gb_media_form(const char *format, enum gb_form *ret, enum gb_notation *ret_notation, struct gb_error *err) {
    static const char *const names[GB_FORM_COUNT] = {"raw", "npy", "safetensors"};
    int i;

    for (i = 0; i < GB_FORM_COUNT; i++) {
        if (strcmp(format, names[i]) == 0) {
            *ret = (enum gb_form)i;
            return 0;
        }
    }
    if (ret_notation && (strcmp(format, "json") == 0 || strcmp(format, "text") == 0)) {
        *ret_notation = format[0] == 'j' ? GB_NOTATION_JSON : GB_NOTATION_TEXT;
        return 0;
    }
    return gb_error_set(err, GB_ERR_INVALID_ARGUMENT, "format must be raw, npy%s",
                        ret_notation ? ", safetensors, json or text" : " or safetensors");
}

const char *gb_media_type(enum gb_form form) {
    return form == GB_FORM_NPY ? GB_MEDIA_NPY : form == GB_FORM_SAFETENSORS ? GB_MEDIA_SAFETENSORS : GB_MEDIA_RAW;
}

const char *gb_media_notation_type(enum gb_notation notation) {
    return notation == GB_NOTATION_JSON ? GB_MEDIA_JSON : "text/plain; charset=utf-8";
}

int gb_media_encoding(const char *content_encoding, struct gb_error *err) {
    if (!content_encoding || is(content_encoding, type_len(content_encoding), "identity"))
        return 0;
    return refused("Content-Encoding", content_encoding, "the bytes as they are", err);
}

/* --- Accept ------------------------------------------------------------------------------------------------------- */

/* How much a client wants one type: q in thousandths, and how precisely the header names the type. */
struct wish {
    int q;
    int precision; /* 0: not mentioned, 1: * / *, 2: its group, as application / *, 3: by name */
};

/* Reads the weight among the parameters params[0..n), in thousandths. An unreadable one counts as 1. */
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

/* "application / *" for a type of that group. */
static bool is_group(const char *value, size_t n, const char *type) {
    size_t group = strcspn(type, "/") + 1;

    return n == group + 1 && value[group] == '*' && strncasecmp(value, type, group) == 0;
}

static void wish_for(struct wish *wish, const char *type, const char *element, size_t type_n, int q) {
    int precision = is(element, type_n, type)         ? 3
                    : is_group(element, type_n, type) ? 2
                    : is(element, type_n, "*/*")      ? 1
                                                      : 0;

    if (precision > wish->precision)
        *wish = (struct wish){.q = q, .precision = precision};
}

/* What each of n types is worth to the client. */
static void read_wishes(const char *accept, const char *const *types, struct wish *wishes, int count) {
    const char *at = accept;
    int i;

    while (*at) {
        size_t n;
        size_t type_n;
        int q;

        at += strspn(at, ", \t");
        n = strcspn(at, ",");
        type_n = type_len(at);
        q = type_n < n ? weight(at + type_n, n - type_n) : 1000;
        for (i = 0; i < count; i++)
            wish_for(&wishes[i], types[i], at, type_n, q);
        at += n;
    }
}

bool gb_media_prefers(const char *accept, const char *type, const char *other) {
    const char *const types[] = {type, other};
    struct wish wishes[2] = {{0}};

    if (accept)
        read_wishes(accept, types, wishes, 2);
    return wishes[0].precision == 3 && wishes[0].q > 0 && wishes[0].q >= wishes[1].q;
}

static int none_pleases(unsigned offered, struct gb_error *err) {
    char list[128] = "";
    int i;

    for (i = 0; i < GB_FORM_COUNT; i++) {
        if (!(offered & 1u << i))
            continue;
        if (list[0] != '\0')
            strcat(list, ", ");
        strcat(list, gb_media_type((enum gb_form)i));
    }
    return gb_error_set(err, GB_ERR_NOT_ACCEPTABLE, "what is here can be had as %s", list);
}

int gb_media_accept(const char *accept, unsigned offered, enum gb_form *ret, struct gb_error *err) {
    const char *const types[] = {GB_MEDIA_RAW, GB_MEDIA_NPY, GB_MEDIA_SAFETENSORS, GB_MEDIA_SAFETENSORS_VENDOR};
    struct wish wishes[GB_FORM_COUNT + 1] = {{0}};
    enum gb_form best = GB_FORM_RAW;
    int i;

    while (!(offered & 1u << best))
        best++;
    if (!accept || accept[strspn(accept, " \t")] == '\0') {
        *ret = best;
        return 0;
    }
    read_wishes(accept, types, wishes, GB_FORM_COUNT + 1);
    if (wishes[GB_FORM_COUNT].precision > wishes[GB_FORM_SAFETENSORS].precision)
        wishes[GB_FORM_SAFETENSORS] = wishes[GB_FORM_COUNT];
    for (i = 0; i < GB_FORM_COUNT; i++) {
        const struct wish *w = &wishes[i];
        bool better = w->q > wishes[best].q || (w->q == wishes[best].q && w->precision > wishes[best].precision);

        if ((offered & 1u << i) && w->q > 0 && better)
            best = (enum gb_form)i;
    }
    if (wishes[best].q == 0)
        return none_pleases(offered, err);
    *ret = best;
    return 0;
}
