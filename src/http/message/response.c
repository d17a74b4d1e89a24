/* A response as a value: its fields, answers that are made once and shared, the fields of CORS, the head as it is sent,
 * problem documents (RFC 9457), and the sink of a small body. Handlers fill responses; the loops send them. */
#include "http/message/response.h"

#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/encoding.h"

/* --- response ----------------------------------------------------------------------------------------------------- */

/* As vsnprintf, but fast for plain texts: most values are, and a reply has up to ten. */
static int format(char *at, size_t room, const char *fmt, va_list ap) {
    const char *text = strcmp(fmt, "%s") == 0 ? va_arg(ap, const char *) : fmt;
    size_t n;

    if (text == fmt && strchr(fmt, '%'))
        return vsnprintf(at, room, fmt, ap);
    n = strlen(text);
    if (n < room)
        memcpy(at, text, n + 1);
    return (int)n;
}

int gb_http_response_header(struct gb_http_response *response, struct gb_error *err, const char *name, const char *fmt,
                            ...) {
    size_t room = sizeof(response->text) - response->text_used;
    char *at = response->text + response->text_used;
    va_list ap;
    int n;

    va_start(ap, fmt);
    n = format(at, room, fmt, ap);
    va_end(ap);
    if (n < 0 || (size_t)n >= room || response->headers == GB_HTTP_RESPONSE_HEADERS_MAX)
        return gb_error_set(err, GB_ERR_INTERNAL, "the header %s does not fit into the reply", name);
    response->text_used += (size_t)n + 1;
    response->header[response->headers].name = name;
    response->header[response->headers].value = at;
    response->headers++;
    return 0;
}

int gb_http_response_long_header(struct gb_http_response *response, struct gb_error *err, const char *name,
                                 char *value) {
    if (!value || response->headers == GB_HTTP_RESPONSE_HEADERS_MAX) {
        free(value);
        return gb_error_set(err, GB_ERR_INTERNAL, "the header %s does not fit into the reply", name);
    }
    free(response->long_value);
    response->long_value = value;
    response->header[response->headers].name = name;
    response->header[response->headers].value = value;
    response->headers++;
    return 0;
}

bool gb_reply_is_read(const struct gb_http_request *request) {
    return gb_http_is_safe(request->method) || request->method == GB_HTTP_METHOD_COUNT;
}

bool gb_response_has(const struct gb_http_response *response, const char *name) {
    unsigned i;

    for (i = 0; i < response->headers; i++) {
        if (strcmp(response->header[i].name, name) == 0)
            return true;
    }
    return false;
}

bool gb_reply_is_asked_for_each_time(const struct gb_http_request *request, const struct gb_http_response *response) {
    return gb_reply_is_read(request) && !gb_response_has(response, GB_REPLY_CACHING_NAME);
}

void gb_http_response_take(struct gb_http_response *response, char *body, size_t n) {
    free(response->body);
    response->body = body;
    response->body_len = n;
}

void gb_http_response_problem(struct gb_http_response *response, const char *type, char *members, size_t n) {
    free(response->problem_members);
    response->problem_type = type;
    response->problem_members = members;
    response->problem_members_len = members ? n : 0;
}

void gb_http_response_canned(struct gb_http_response *response, struct gb_http_canned *canned) {
    gb_http_canned_unref(response->canned);
    response->canned = canned;
}

void gb_response_unpack(struct gb_http_response *response, const struct gb_http_request *request, const char **ret_body,
                        size_t *ret_n) {
    const struct gb_http_canned *canned = response->canned;

    response->status = canned->status;
    *ret_body = canned->body;
    *ret_n = canned->body_len;
    gb_http_response_header(response, NULL, "Content-Type", "%s", canned->type);
    if (canned->etag)
        gb_http_response_header(response, NULL, "ETag", "%s", canned->etag);
    if (gb_http_canned_known(canned, request)) {
        response->status = 304;
        *ret_n = 0;
    }
}

void gb_http_response_source(struct gb_http_response *response, struct gb_http_source *source, uint64_t length) {
    if (response->source)
        response->source->free(response->source, false);
    response->source = source;
    response->source_len = length;
}

int gb_http_response_fd(struct gb_http_response *response, int fd, struct gb_error *err) {
    if (response->fds == GB_HTTP_RESPONSE_FDS_MAX) {
        close(fd);
        return gb_error_set(err, GB_ERR_INTERNAL, "more than %d descriptors for one reply", GB_HTTP_RESPONSE_FDS_MAX);
    }
    response->fd[response->fds++] = fd;
    return 0;
}

void gb_http_response_close(struct gb_http_response *response) {
    while (response->fds > 0)
        close(response->fd[--response->fds]);
}

void gb_response_drop_listener(struct gb_http_response *response) {
    if (response->listener)
        response->listener_free(response->listener);
    response->listener = NULL;
}

void gb_http_response_done(struct gb_http_response *response) {
    free(response->body);
    free(response->long_value);
    gb_http_response_close(response);
    gb_http_response_problem(response, NULL, NULL, 0);
    gb_http_canned_unref(response->canned);
    if (response->source)
        response->source->free(response->source, false);
    gb_response_drop_listener(response);
    response->body = NULL;
    response->long_value = NULL;
    response->body_len = 0;
    response->canned = NULL;
    response->source = NULL;
    response->source_len = 0;
    response->unsent_len = 0;
    response->is_vital = false;
    response->headers = 0;
    response->text_used = 0;
    response->status = 200;
}

/* --- canned ------------------------------------------------------------------------------------------------------- */

#define CACHE_LINE 64 /* the kernel copies faster if the source begins with one */

struct gb_http_canned *gb_http_canned_new(int status, const char *content_type, const char *etag, const void *body,
                                          size_t n) {
    struct gb_http_canned *c = calloc(1, sizeof(*c));

    if (!c)
        return NULL;
    atomic_init(&c->refs, 1);
    c->status = status;
    c->type = strdup(content_type ? content_type : "application/octet-stream");
    c->etag = etag ? strdup(etag) : NULL;
    c->body = aligned_alloc(CACHE_LINE, (n / CACHE_LINE + 1) * CACHE_LINE);
    c->body_len = n;
    if (!c->type || !c->body || (etag && !c->etag)) {
        gb_http_canned_unref(c);
        return NULL;
    }
    if (n > 0)
        memcpy(c->body, body, n);
    return c;
}

struct gb_http_canned *gb_http_canned_ref(struct gb_http_canned *canned) {
    atomic_fetch_add_explicit(&canned->refs, 1, memory_order_relaxed);
    return canned;
}

void gb_http_canned_unref(struct gb_http_canned *canned) {
    if (!canned || atomic_fetch_sub_explicit(&canned->refs, 1, memory_order_acq_rel) != 1)
        return;
    free(canned->body);
    free(canned->type);
    free(canned->etag);
    free(canned);
}

bool gb_http_canned_known(const struct gb_http_canned *canned, const struct gb_http_request *request) {
    const char *asked = canned->etag ? gb_http_header(request, "If-None-Match") : NULL;

    /* The tag carries its quotes, so that finding it in the list compares it with one whole member. Weak tags match
     * too. */
    return asked && (strcmp(asked, "*") == 0 || strstr(asked, strchr(canned->etag, '"')) != NULL);
}

/* --- CORS --------------------------------------------------------------------------------------------------------- */

/* How long a browser remembers a preflight. A daemon that is started without the origin refuses its requests all the
 * same. */
#define MAX_AGE_S "600"

/* What a page may read of a reply besides the fields that it always may. */
#define EXPOSED                                                                                                        \
    "Accept-Encoding, Accept-Patch, Accept-Ranges, Allow, Content-Digest, Content-Range, ETag, Gpubuf-Crc32c, "        \
    "Gpubuf-Dtype, Gpubuf-Epoch, Gpubuf-Fleet, Gpubuf-Generation, Gpubuf-Owner, Gpubuf-Replica, Gpubuf-Shape, "        \
    "Idempotency-Replayed, Link, Location, Preference-Applied, RateLimit, RateLimit-Policy, Repr-Digest, "             \
    "Retry-After, Server-Timing, Upload-Complete, "                                                                    \
    "Upload-Length, Upload-Limit, Upload-Offset, WWW-Authenticate, X-Request-Id"

/* Also a reply to others says that it depends on the origin, since a cache may give it to a page. */
unsigned gb_cors_fields(const struct gb_http_request *request, struct gb_cors_field ret[GB_CORS_FIELDS]) {
    unsigned n = 0;

    if (!request->by_origin)
        return 0;
    ret[n++] = (struct gb_cors_field){"Vary", "Origin"};
    if (!request->origin)
        return n;
    ret[n++] = (struct gb_cors_field){"Access-Control-Allow-Origin", request->origin};
    ret[n++] = (struct gb_cors_field){"Access-Control-Expose-Headers", EXPOSED};
    return n;
}

/* The fields that the page wants to send are permitted as they are named: what a request may have is checked when it
 * comes. */
static int allow(const struct gb_http_request *request, const char *methods, struct gb_http_response *response,
                 struct gb_error *err) {
    const char *fields = gb_http_header(request, "Access-Control-Request-Headers");
    char *copy;

    if (gb_http_response_header(response, err, "Access-Control-Allow-Methods", "%s", methods) < 0 ||
        gb_http_response_header(response, err, "Access-Control-Max-Age", MAX_AGE_S) < 0)
        return -1;
    if (!fields)
        return 0;
    copy = strdup(fields);
    if (!copy)
        return gb_error_memory(err, "reply");
    return gb_http_response_long_header(response, err, "Access-Control-Allow-Headers", copy);
}

int gb_cors_options(const struct gb_http_request *request, const char *methods, struct gb_http_response *response,
                    struct gb_error *err) {
    response->status = 204;
    if (gb_http_response_header(response, err, "Allow", "%s", methods) < 0)
        return -1;
    if (!request->origin || !gb_http_header(request, "Access-Control-Request-Method"))
        return 0;
    return allow(request, methods, response, err);
}

/* --- head writer -------------------------------------------------------------------------------------------------- */

struct out {
    char *s;
    size_t size;
    size_t used;
    bool full;
};

static void add(struct out *o, const char *text) {
    size_t n = strlen(text);

    o->full = o->full || n > o->size - o->used;
    if (o->full)
        return;
    memcpy(o->s + o->used, text, n);
    o->used += n;
}

static void add_field(struct out *o, const char *name, const char *value) {
    add(o, name);
    add(o, ": ");
    add(o, value);
    add(o, "\r\n");
}

/* "Sun, 06 Nov 1994 08:49:37 GMT". Not strftime: its names follow the locale. */
static void write_date(time_t now, char *at) {
    static const char days[] = "SunMonTueWedThuFriSat";
    static const char months[] = "JanFebMarAprMayJunJulAugSepOctNovDec";
    struct tm tm;

    gmtime_r(&now, &tm);
    at = (char *)memcpy(at, days + (size_t)tm.tm_wday * 3, 3) + 3;
    at = gb_digits_padded(stpcpy(at, ", "), (uint64_t)tm.tm_mday, 2);
    *at++ = ' ';
    at = (char *)memcpy(at, months + (size_t)tm.tm_mon * 3, 3) + 3;
    *at++ = ' ';
    at = gb_digits_padded(at, (uint64_t)tm.tm_year + 1900, 4);
    *at++ = ' ';
    at = gb_digits_padded(at, (uint64_t)tm.tm_hour, 2);
    *at++ = ':';
    at = gb_digits_padded(at, (uint64_t)tm.tm_min, 2);
    *at++ = ':';
    at = gb_digits_padded(at, (uint64_t)tm.tm_sec, 2);
    stpcpy(at, " GMT");
}

/* Written once a second. */
static const char *date(void) {
    static _Thread_local char text[32];
    static _Thread_local time_t written = -1;
    time_t now = time(NULL);

    if (now != written)
        write_date(now, text);
    written = now;
    return text;
}

static void add_status(struct out *o, int status) {
    char digits[4] = "";

    gb_digits_padded(digits, (uint64_t)status, 3);
    add(o, "HTTP/1.1 ");
    add(o, digits);
    add(o, " ");
    add(o, gb_http_reason(status));
    add(o, "\r\n");
}

size_t gb_head_write(const struct gb_http_request *request, const struct gb_http_response *response, uint64_t body_len,
                     bool close, char *out, size_t size) {
    struct out o = {.s = out, .size = size};
    char digits[GB_DIGITS_MAX + 1];
    struct gb_cors_field cors[GB_CORS_FIELDS];
    int status = response->status;
    unsigned cors_count;
    unsigned i;

    add_status(&o, status);
    add_field(&o, "Date", date());
    add_field(&o, GB_REPLY_ID, request->id);
    if (gb_reply_is_read(request))
        add(&o, GB_EVERY_REPLY_LINES);
    if (gb_reply_is_asked_for_each_time(request, response))
        add_field(&o, GB_REPLY_CACHING_NAME, GB_REPLY_CACHING);
    for (i = 0, cors_count = gb_cors_fields(request, cors); i < cors_count; i++)
        add_field(&o, cors[i].name, cors[i].value);
    for (i = 0; i < response->headers; i++)
        add_field(&o, response->header[i].name, response->header[i].value);
    *gb_digits(digits, body_len) = '\0';
    if (status != 204 && status != 304 && body_len != GB_HEAD_UNTIL_END)
        add_field(&o, "Content-Length", digits);
    if (close)
        add_field(&o, "Connection", "close");
    else if (request->http10)
        add_field(&o, "Connection", "keep-alive");
    add(&o, "\r\n");
    return o.full ? 0 : o.used;
}

/* --- status ------------------------------------------------------------------------------------------------------- */

#define CLASSES 5
#define CODES 52 /* of a class: the highest in use is x51 */

/* libmicrohttpd's phrases, so that a reply is the same whichever way it goes out. */
static const char *const phrases[CLASSES][CODES] = {
    {
        [0] = "Continue",
        [1] = "Switching Protocols",
        [3] = "Early Hints",
    },
    {
        [0] = "OK",
        [1] = "Created",
        [2] = "Accepted",
        [3] = "Non-Authoritative Information",
        [4] = "No Content",
        [5] = "Reset Content",
        [6] = "Partial Content",
    },
    {
        [0] = "Multiple Choices",
        [1] = "Moved Permanently",
        [2] = "Found",
        [3] = "See Other",
        [4] = "Not Modified",
        [7] = "Temporary Redirect",
        [8] = "Permanent Redirect",
    },
    {
        [0] = "Bad Request",
        [1] = "Unauthorized",
        [2] = "Payment Required",
        [3] = "Forbidden",
        [4] = "Not Found",
        [5] = "Method Not Allowed",
        [6] = "Not Acceptable",
        [7] = "Proxy Authentication Required",
        [8] = "Request Timeout",
        [9] = "Conflict",
        [10] = "Gone",
        [11] = "Length Required",
        [12] = "Precondition Failed",
        [13] = "Content Too Large",
        [14] = "URI Too Long",
        [15] = "Unsupported Media Type",
        [16] = "Range Not Satisfiable",
        [17] = "Expectation Failed",
        [21] = "Misdirected Request",
        [22] = "Unprocessable Content",
        [23] = "Locked",
        [24] = "Failed Dependency",
        [25] = "Too Early",
        [26] = "Upgrade Required",
        [28] = "Precondition Required",
        [29] = "Too Many Requests",
        [31] = "Request Header Fields Too Large",
        [51] = "Unavailable For Legal Reasons",
    },
    {
        [0] = "Internal Server Error",
        [1] = "Not Implemented",
        [2] = "Bad Gateway",
        [3] = "Service Unavailable",
        [4] = "Gateway Timeout",
        [5] = "HTTP Version Not Supported",
        [7] = "Insufficient Storage",
        [8] = "Loop Detected",
        [11] = "Network Authentication Required",
    },
};

const char *gb_http_reason(int status) {
    unsigned class = (unsigned)status / 100 - 1;
    unsigned code = (unsigned)status % 100;
    const char *phrase = class < CLASSES && code < CODES ? phrases[class][code] : NULL;

    return phrase ? phrase : "Unknown";
}

/* --- problem ------------------------------------------------------------------------------------------------------ */

/* The bytes of a target that are shown; a client that sent a longer one knows it. */
#define INSTANCE_MAX 300

/* The error of the native layer. The host backend reports what CUDA would, in the same member. */
static void write_native(struct gb_json_writer *out, const struct gb_error *error) {
    bool device = strcmp(error->native_domain, "cuda") == 0 || strcmp(error->native_domain, "host") == 0;

    gb_json_open(out, device ? "cuda" : "native", '{');
    gb_json_put_untrusted(out, "name", error->native_name, SIZE_MAX);
    gb_json_put_i64(out, "code", error->native_code);
    gb_json_put_untrusted(out, "call", error->call, SIZE_MAX);
    gb_json_put_string(out, "domain", error->native_domain);
    if (error->native_text)
        gb_json_put_untrusted(out, "message", error->native_text, SIZE_MAX);
    gb_json_close(out, '}');
}

void gb_problem_open(struct gb_json_writer *out, const struct gb_error *error, const char *type, const char *instance,
                     const char *id) {
    char urn[96];

    snprintf(urn, sizeof(urn), "urn:gpubuf:error:%s", gb_code_slug(error->code));
    gb_json_open(out, NULL, '{');
    gb_json_put_string(out, "type", type ? type : urn);
    gb_json_put_string(out, "title", gb_code_title(error->code));
    gb_json_put_i64(out, "status", gb_code_status(error->code));
    gb_json_put_untrusted(out, "detail", error->detail, SIZE_MAX);
    gb_json_put_untrusted(out, "instance", instance, INSTANCE_MAX);
    gb_json_put_string(out, "code", gb_code_slug(error->code));
    gb_json_put_bool(out, "retryable", gb_error_retryable(error));
    gb_json_put_string(out, "request_id", id);
}

static void write_document(struct gb_json_writer *out, const struct gb_http_request *request,
                           const struct gb_http_response *response, const struct gb_error *error) {
    gb_problem_open(out, error, response->problem_type, request->shown.s ? request->shown.s : request->target.s,
                    request->id);
    if (error->has_numbers) {
        gb_json_put_u64(out, "limit_bytes", error->limit_bytes);
        gb_json_put_u64(out, "used_bytes", error->used_bytes);
        gb_json_put_u64(out, "requested_bytes", error->requested_bytes);
    }
    if (error->native_domain[0])
        write_native(out, error);
    if (response->problem_members)
        gb_json_put_members(out, response->problem_members, response->problem_members_len);
    gb_json_close(out, '}');
    gb_json_end(out);
}

void gb_http_problem(struct gb_http_response *response, const struct gb_http_request *request,
                     const struct gb_error *error) {
    struct gb_json_writer out = {0};

    free(response->body);
    response->body = NULL;
    response->body_len = 0;
    gb_http_response_close(response);
    gb_http_response_canned(response, NULL);
    gb_http_response_source(response, NULL, 0);
    response->status = gb_code_status(error->code);
    if (response->status == 401)
        gb_http_response_header(response, NULL, "WWW-Authenticate", "Bearer realm=\"gpubufd\"");
    if (!gb_response_has(response, "Retry-After") &&
        (response->status == 503 || error->code == GB_ERR_BUFFER_BUSY || error->code == GB_ERR_UPLOAD_BUSY ||
         error->code == GB_ERR_KEY_IN_USE))
        gb_http_response_header(response, NULL, "Retry-After", "1");
    /* Without memory for the text the status still goes out. */
    write_document(&out, request, response, error);
    if (out.failed) {
        gb_json_done(&out);
        return;
    }
    gb_http_response_problem(response, NULL, NULL, 0);
    gb_http_response_header(response, NULL, "Content-Type", "application/problem+json");
    gb_http_response_header(response, NULL, "Cache-Control", "no-store");
    gb_http_response_take(response, out.s, out.used);
}

/* --- body buffer -------------------------------------------------------------------------------------------------- */

struct buffer {
    struct gb_http_sink sink;
    char *data;
    size_t used;
    size_t size;
    size_t max;
};

static int room(struct gb_http_sink *sink, void **ret_ptr, size_t *ret_n, struct gb_error *err) {
    struct buffer *b = (struct buffer *)sink;

    if (b->used == b->max)
        return gb_error_set(err, GB_ERR_BODY_TOO_LARGE, "the body is larger than %zu bytes", b->max);
    if (b->used == b->size) {
        size_t size = b->size ? b->size * 2 : 1024;
        char *bigger;

        if (size > b->max)
            size = b->max;
        bigger = realloc(b->data, size + 1); /* one more for the NUL */
        if (!bigger)
            return gb_error_memory(err, "body");
        b->data = bigger;
        b->size = size;
    }
    *ret_ptr = b->data + b->used;
    *ret_n = b->size - b->used;
    return 1;
}

static int fill(struct gb_http_sink *sink, size_t n, struct gb_error *err) {
    (void)err;
    ((struct buffer *)sink)->used += n;
    return 0;
}

void gb_body_buffer_end(struct gb_http_sink *sink, struct gb_http_request *request) {
    struct buffer *b = (struct buffer *)sink;

    if (b->data) {
        b->data[b->used] = '\0';
        request->body = b->data;
        request->body_len = b->used;
    }
}

static void release(struct gb_http_sink *sink) {
    struct buffer *b = (struct buffer *)sink;

    free(b->data);
    free(b);
}

struct gb_http_sink *gb_body_buffer_new(size_t max) {
    struct buffer *b = calloc(1, sizeof(*b));

    if (!b)
        return NULL;
    b->sink = (struct gb_http_sink){.room = room, .fill = fill, .free = release};
    b->max = max;
    return &b->sink;
}
