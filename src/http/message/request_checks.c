/* Refused here: two lengths, other transfer codings, odd header bytes, hosts that are not ours (a web page could reach
 * a local daemon by DNS rebinding), requests of other sites' pages. */
#include "http/message/request_checks.h"

#include <arpa/inet.h>
#include <string.h>
#include <strings.h>

#include "base/parse.h"
#include "http/message/cors.h"
#include "http/message/fields.h"
#include "http/message/request.h"

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

#define NAMED(header, name) gb_http_named(header, name, sizeof(name) - 1)

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

    gb_cors_read(request, rules); /* first: the page can read why the others refuse */
    if (collect(request, &f, err) < 0 || check_framing(request, &f, err) < 0)
        return -1;
    if (check_host(request, &f, rules, err) < 0)
        return -1;
    if (check_site(request, rules, err) < 0)
        return -1;
    return check_origin(request, &f, err);
}
