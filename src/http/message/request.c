#include "http/message/request.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/encoding.h"
#include "base/parse.h"
#include "http/message/fields.h"

/* As long as RFC 9110 asks for. If a target does not fit into the connection's memory, libmicrohttpd itself answers
 * 414. */
#define TARGET_MAX 8000

const char *gb_http_method_name(enum gb_http_method method) {
    static const char *const names[] = {"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "unknown"};

    return names[(unsigned)method < GB_HTTP_METHOD_COUNT ? (unsigned)method : GB_HTTP_METHOD_COUNT];
}

bool gb_http_named(const struct gb_http_pair *header, const char *name, size_t len) {
    return header->name.len == len && strcasecmp(header->name.s, name) == 0;
}

const char *gb_http_header_next(const struct gb_http_request *request, const char *name, unsigned *at) {
    size_t len = strlen(name);

    while (*at < request->headers) {
        const struct gb_http_pair *header = &request->header[(*at)++];

        if (gb_http_named(header, name, len))
            return header->value.s;
    }
    return NULL;
}

const char *gb_http_header(const struct gb_http_request *request, const char *name) {
    unsigned at = 0;

    return gb_http_header_next(request, name, &at);
}

int gb_http_item(const struct gb_http_request *request, const char *name, struct gb_field *ret) {
    unsigned at = 0;
    const char *line = gb_http_header_next(request, name, &at);

    if (!line)
        return 0;
    return gb_field_item(line, ret) < 0 || gb_http_header_next(request, name, &at) ? -1 : 1;
}

const struct gb_http_text *gb_http_query(const struct gb_http_request *request, const char *name) {
    unsigned i;

    for (i = 0; i < request->queries; i++) {
        if (strcmp(request->query[i].name.s, name) == 0)
            return &request->query[i].value;
    }
    return NULL;
}

unsigned gb_http_prefer_wait(const struct gb_http_request *request, unsigned fallback_s, unsigned max_s,
                             bool *ret_async) {
    unsigned wait_s = fallback_s;
    bool async = false;
    bool given = false;
    unsigned line = 0;
    const char *at;

    while ((at = gb_http_header_next(request, "Prefer", &line))) {
        while (*at) {
            size_t n = strcspn(at, ",;");
            const char *word = at + strspn(at, " \t");
            size_t len = (size_t)(at + n - word);
            uint64_t value;

            while (len > 0 && (word[len - 1] == ' ' || word[len - 1] == '\t'))
                len--;
            if (len == 13 && strncasecmp(word, "respond-async", 13) == 0)
                async = true;
            /* A malformed wait is ignored, and of several the first counts, as RFC 7240 asks. */
            if (!given && len > 5 && strncasecmp(word, "wait=", 5) == 0 &&
                gb_parse_u64(word + 5, len - 5, &value) == GB_PARSE_OK) {
                wait_s = value > max_s ? max_s : (unsigned)value;
                given = true;
            }
            at += n + (at[n] != '\0');
        }
    }
    if (ret_async)
        *ret_async = async;
    return wait_s;
}

void gb_request_take_id(struct gb_http_request *request) {
    static const char permitted[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.";
    const char *own = gb_http_header(request, "X-Request-Id");
    size_t n = own ? strspn(own, permitted) : 0;

    if (n > 0 && n <= GB_HTTP_ID_MAX && own[n] == '\0')
        memcpy(request->id, own, n + 1);
}

int gb_percent_decode(const char *s, size_t n, char *out, size_t *ret_n) {
    size_t used = 0;
    size_t i;

    if (s == out && !memchr(s, '%', n)) {
        *ret_n = n;
        return 0;
    }
    for (i = 0; i < n; i++) {
        if (s[i] != '%') {
            out[used++] = s[i];
            continue;
        }
        if (i + 2 >= n || gb_hex_digit(s[i + 1]) < 0 || gb_hex_digit(s[i + 2]) < 0)
            return -1;
        out[used++] = (char)(gb_hex_digit(s[i + 1]) * 16 + gb_hex_digit(s[i + 2]));
        i += 2;
    }
    out[used] = '\0';
    *ret_n = used;
    return 0;
}

static int decode_text(struct gb_text_arena *texts, const char *s, size_t n, struct gb_http_text *ret,
                       struct gb_error *err) {
    char *copy = gb_text_arena_copy(texts, s, n);
    size_t len;

    if (!copy)
        return gb_error_set(err, GB_ERR_URI_TOO_LONG, "the URI is longer than this daemon reads");
    if (gb_percent_decode(copy, n, copy, &len) < 0)
        return gb_error_set(err, GB_ERR_MALFORMED_REQUEST,
                            "a '%%' in the URI is not followed by two hexadecimal digits");
    ret->s = copy;
    ret->len = len;
    return 0;
}

static int add_query(struct gb_http_request *request, struct gb_text_arena *texts, const char *s, size_t n,
                     struct gb_error *err) {
    const char *eq = memchr(s, '=', n);
    size_t name_len = eq ? (size_t)(eq - s) : n;
    struct gb_http_pair *pair;

    if (n == 0)
        return 0;
    if (request->queries == GB_HTTP_QUERY_MAX)
        return gb_error_set(err, GB_ERR_MALFORMED_REQUEST, "more than %d query parameters", GB_HTTP_QUERY_MAX);
    pair = &request->query[request->queries];
    if (decode_text(texts, s, name_len, &pair->name, err) < 0)
        return -1;
    if (decode_text(texts, eq ? eq + 1 : s + n, eq ? n - name_len - 1 : 0, &pair->value, err) < 0)
        return -1;
    if (gb_http_query(request, pair->name.s))
        return gb_error_set(err, GB_ERR_MALFORMED_REQUEST, "the query parameter '%.40s' is given twice", pair->name.s);
    request->queries++;
    return 0;
}

/* Copies the target without the parameters whose bits are set, in their order. */
static int cut_target(struct gb_http_request *request, struct gb_text_arena *texts, unsigned cut,
                      struct gb_error *err) {
    char *copy = gb_text_arena_copy(texts, request->target.s, request->target.len);
    char *to = copy ? strchr(copy, '?') : NULL;
    const char *from = to ? to + 1 : "";
    char separator = '?';

    if (!to)
        return gb_error_set(err, GB_ERR_URI_TOO_LONG, "the URI is longer than this daemon reads");
    while (*from) {
        size_t n = strcspn(from, "&");
        const char *next = from + n + (from[n] != '\0');

        if (n > 0 && (cut & 1) == 0) {
            *to++ = separator;
            memmove(to, from, n);
            to += n;
            separator = '&';
        }
        cut >>= n > 0;
        from = next;
    }
    *to = '\0';
    request->shown = (struct gb_http_text){.s = copy, .len = strlen(copy)};
    return 0;
}

int gb_request_set_aside(struct gb_http_request *request, struct gb_text_arena *texts, const char *const *names,
                         size_t count, struct gb_error *err) {
    unsigned kept = 0;
    unsigned cut = 0;
    unsigned i;
    size_t k;

    for (i = 0; i < request->queries; i++) {
        for (k = 0; k < count && strcmp(names[k], request->query[i].name.s) != 0; k++)
            ;
        if (k < count)
            request->aside[k] = request->query[i].value;
        else
            request->query[kept++] = request->query[i];
        cut |= (unsigned)(k < count) << i;
    }
    request->queries = kept;
    return cut ? cut_target(request, texts, cut, err) : 0;
}

int gb_request_parse_target(struct gb_http_request *request, struct gb_text_arena *texts, struct gb_http_text *ret_path,
                            struct gb_error *err) {
    const char *s = request->target.s;
    const char *question = strchr(s, '?');
    const char *at;

    if (request->target.len > TARGET_MAX)
        return gb_error_set(err, GB_ERR_URI_TOO_LONG, "the URI is longer than %d bytes", TARGET_MAX);
    for (at = s; *at; at++) {
        if (*at <= 0x20 || *at == 0x7f)
            return gb_error_set(err, GB_ERR_MALFORMED_REQUEST, "the request target holds the byte 0x%02x",
                                (unsigned char)*at);
    }
    if (s[0] != '/')
        return gb_error_set(err, GB_ERR_MALFORMED_REQUEST, "the request target must begin with '/'");
    ret_path->s = s;
    ret_path->len = question ? (size_t)(question - s) : strlen(s);
    for (at = question ? question + 1 : NULL; at && *at;) {
        size_t n = strcspn(at, "&");

        if (add_query(request, texts, at, n, err) < 0)
            return -1;
        at += n + (at[n] == '&');
    }
    return 0;
}
