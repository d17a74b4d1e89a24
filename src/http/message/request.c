/* The head of a request as it stands in a client's bytes: its line, its fields, what the two forbid, and what other
 * origins may read (CORS). */
#include "http/message/request.h"

#include <arpa/inet.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/encoding.h"
#include "base/text.h"
#include "http/message/fields.h"

/* --- request ------------------------------------------------------------------------------------------------------ */

/* As long as RFC 9110 asks for. If a target does not fit into the connection's memory, libmicrohttpd itself answers
 * 414. */
#define TARGET_MAX 8000

const char *gb_http_method_name(enum gb_http_method method) {
    static const char *const names[] = {"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "unknown"};

    return names[(unsigned)method < GB_HTTP_METHOD_COUNT ? (unsigned)method : GB_HTTP_METHOD_COUNT];
}

bool gb_http_is_safe(enum gb_http_method method) {
    return method == GB_HTTP_GET || method == GB_HTTP_HEAD || method == GB_HTTP_OPTIONS;
}

/* Whether the header has that name, whatever the case of its letters. */
static bool http_named(const struct gb_http_pair *header, const char *name, size_t len) {
    return header->name.len == len && strcasecmp(header->name.s, name) == 0;
}

const char *gb_http_header_next(const struct gb_http_request *request, const char *name, unsigned *at) {
    size_t len = strlen(name);

    while (*at < request->headers) {
        const struct gb_http_pair *header = &request->header[(*at)++];

        if (http_named(header, name, len))
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

/* --- cors --------------------------------------------------------------------------------------------------------- */

/* Sets request->by_origin, and request->origin if the request is from a page of a configured origin. */
static void cors_read(struct gb_http_request *request, const struct gb_request_rules *rules) {
    const char *origin;
    unsigned at = 0;
    size_t i;

    request->by_origin = rules->origin_count > 0;
    origin = request->by_origin ? gb_http_header_next(request, "Origin", &at) : NULL;
    if (!origin || gb_http_header_next(request, "Origin", &at))
        return;
    for (i = 0; i < rules->origin_count; i++) {
        if (strcmp(origin, rules->origins[i]) == 0)
            request->origin = rules->origins[i];
    }
}

/* --- request checks ----------------------------------------------------------------------------------------------- */

/* Refused here: two lengths, other transfer codings, odd header bytes, hosts that are not ours (a web page could reach
 * a local daemon by DNS rebinding), requests of other sites' pages. */

static int check_bytes(const struct gb_http_pair *h, struct gb_error *err) {
    const unsigned char *at;

    if (h->name.len == 0)
        return gb_error_set(err, GB_ERR_MALFORMED_REQUEST, "a header has an empty name");
    for (at = (const unsigned char *)h->name.s; *at; at++) {
        if (!gb_field_is_token(*at))
            return gb_error_set(err, GB_ERR_MALFORMED_REQUEST, "a header name has the byte 0x%02x", *at);
    }
    for (at = (const unsigned char *)h->value.s; *at; at++) {
        if ((*at < 0x20 && *at != '\t') || *at == 0x7f)
            return gb_error_set(err, GB_ERR_MALFORMED_REQUEST, "the value of %.40s has the byte 0x%02x", h->name.s,
                                *at);
    }
    return 0;
}

struct framing {
    const char *length;
    const char *coding;
    const char *host;
    unsigned lengths;
    unsigned codings;
    unsigned hosts;
};

#define NAMED(header, name) http_named(header, name, sizeof(name) - 1)

static int collect(struct gb_http_request *request, struct framing *ret, struct gb_error *err) {
    unsigned i;

    for (i = 0; i < request->headers; i++) {
        const struct gb_http_pair *h = &request->header[i];

        if (check_bytes(h, err) < 0)
            return -1;
        if (NAMED(h, "Content-Length")) {
            ret->length = h->value.s;
            ret->lengths++;
        } else if (NAMED(h, "Transfer-Encoding")) {
            ret->coding = h->value.s;
            ret->codings++;
        } else if (NAMED(h, "Host")) {
            ret->host = h->value.s;
            ret->hosts++;
        } else if (NAMED(h, "Expect")) {
            request->expect_continue = !request->http10 && strcasecmp(h->value.s, "100-continue") == 0;
        } else if (NAMED(h, "Connection")) {
            request->close = request->close || strcasestr(h->value.s, "close") != NULL;
        }
    }
    return 0;
}

static int check_framing(struct gb_http_request *request, const struct framing *f, struct gb_error *err) {
    if (f->lengths > 0 && f->codings > 0)
        return gb_error_set(err, GB_ERR_AMBIGUOUS_LENGTH,
                            "Content-Length and Transfer-Encoding exclude each other; send one of them");
    if (f->lengths > 1 || (f->length && strchr(f->length, ',')))
        return gb_error_set(err, GB_ERR_AMBIGUOUS_LENGTH, "Content-Length must be given once");
    if (f->codings > 1 || (f->coding && strcasecmp(f->coding, "chunked") != 0))
        return gb_error_set(err, GB_ERR_AMBIGUOUS_LENGTH, "the only Transfer-Encoding accepted is 'chunked', once");
    if (f->codings > 0 && request->http10)
        return gb_error_set(err, GB_ERR_AMBIGUOUS_LENGTH, "HTTP/1.0 has no Transfer-Encoding");
    request->chunked = f->codings > 0;
    if (f->length) {
        if (gb_parse_u64(f->length, strlen(f->length), &request->content_length) != GB_PARSE_OK)
            return gb_error_set(err, GB_ERR_MALFORMED_REQUEST, "Content-Length must be a decimal number below 2^64");
        request->has_content_length = true;
    }
    return 0;
}

/* The name in host[:port], without the brackets of IPv6 and without the dot at the end that has a resolver try no other
 * name; *ret_len is 0 if it is malformed. */
static const char *host_name(const char *host, size_t *ret_len) {
    const char *end;

    *ret_len = 0;
    if (host[0] == '[') {
        end = strchr(host, ']');
        if (!end || (end[1] != '\0' && end[1] != ':'))
            return host;
        *ret_len = (size_t)(end - host - 1);
        return host + 1;
    }
    *ret_len = strcspn(host, ":");
    if (*ret_len > 1 && host[*ret_len - 1] == '.')
        (*ret_len)--;
    return host;
}

/* DNS cannot rebind an IP literal, so any is fine. */
static bool is_ip(const char *name) {
    unsigned char raw[16];

    return inet_pton(AF_INET, name, raw) == 1 || inet_pton(AF_INET6, name, raw) == 1;
}

/* "*" stands for one label. */
static bool is_for(const char *pattern, const char *name) {
    const char *rest = strchr(name, '.');

    if (strncmp(pattern, "*.", 2) != 0)
        return strcasecmp(pattern, name) == 0;
    return rest && rest > name && strcasecmp(pattern + 1, rest) == 0;
}

/* A client that was led here by another name has refused the certificate. */
static bool is_certified(const struct gb_http_names *names, const char *name) {
    size_t i;

    for (i = 0; names && i < names->count; i++) {
        if (is_for(names->name[i], name))
            return true;
    }
    return false;
}

static int check_host(const struct gb_http_request *request, const struct framing *f,
                      const struct gb_request_rules *rules, struct gb_error *err) {
    char name[256];
    const char *at;
    size_t n;
    size_t i;

    if (f->hosts > 1)
        return gb_error_set(err, GB_ERR_MALFORMED_REQUEST, "Host must be given once");
    if (f->hosts == 0) {
        if (request->http10)
            return 0;
        return gb_error_set(err, GB_ERR_MALFORMED_REQUEST, "HTTP/1.1 needs a Host header");
    }
    if (request->local)
        return 0;
    at = host_name(f->host, &n);
    if (n == 0 || n >= sizeof(name))
        return gb_error_set(err, GB_ERR_MALFORMED_REQUEST, "the Host header is malformed");
    memcpy(name, at, n);
    name[n] = '\0';
    if (is_ip(name) || strcasecmp(name, "localhost") == 0 || is_certified(request->names, name))
        return 0;
    for (i = 0; i < rules->host_count; i++) {
        if (strcasecmp(name, rules->hosts[i]) == 0)
            return 0;
    }
    return gb_error_set(
        err, GB_ERR_MISDIRECTED,
        "this daemon does not answer to the host '%.80s'; use its address%s, or start it with --host-name", name,
        request->names ? " or a name of its certificate" : "");
}

/* A link to a page. The page that has the link cannot read the answer. */
static bool is_link(const struct gb_http_request *request, const struct gb_request_rules *rules) {
    const char *mode = gb_http_header(request, "Sec-Fetch-Mode");
    const char *into = gb_http_header(request, "Sec-Fetch-Dest");
    size_t path = strcspn(request->target.s, "?");
    size_t i;

    if (!mode || strcmp(mode, "navigate") != 0 || !into || strcmp(into, "document") != 0)
        return false;
    for (i = 0; i < rules->page_count; i++) {
        size_t n = strlen(rules->pages[i]);
        bool folder = n > 1 && rules->pages[i][n - 1] == '/';

        if (path >= n && memcmp(request->target.s, rules->pages[i], n) == 0 && (folder || path == n))
            return true;
    }
    return false;
}

/* Browsers send this header; other clients do not. Another port of this host is the same site but not this daemon: any
 * user may serve it. */
static int check_site(const struct gb_http_request *request, const struct gb_request_rules *rules,
                      struct gb_error *err) {
    const char *site = gb_http_header(request, "Sec-Fetch-Site");

    if (!site || request->origin || strcmp(site, "same-origin") == 0 || strcmp(site, "none") == 0 ||
        (gb_http_is_safe(request->method) && is_link(request, rules)))
        return 0;
    return gb_error_set(
        err, GB_ERR_CROSS_ORIGIN,
        "pages of other origins may not send requests here (Sec-Fetch-Site: %.40s); only the daemon's own page, "
        "those of --cors-origin, and programs that are not browsers, may",
        site);
}

static int check_origin(const struct gb_http_request *request, const struct framing *f, struct gb_error *err) {
    const char *origin = gb_http_header(request, "Origin");
    const char *at;

    if (!origin || request->origin || gb_http_is_safe(request->method))
        return 0;
    at = strstr(origin, "://");
    if (at && f->host && strcasecmp(at + 3, f->host) == 0)
        return 0;
    return gb_error_set(err, GB_ERR_CROSS_ORIGIN,
                        "pages of the origin '%.80s' may not change anything here; --cors-origin permits one", origin);
}

int gb_request_check(struct gb_http_request *request, const struct gb_request_rules *rules, struct gb_error *err) {
    struct framing f = {0};

    cors_read(request, rules); /* first: the page can read why the others refuse */
    if (collect(request, &f, err) < 0 || check_framing(request, &f, err) < 0)
        return -1;
    if (check_host(request, &f, rules, err) < 0)
        return -1;
    if (check_site(request, rules, err) < 0)
        return -1;
    return check_origin(request, &f, err);
}
