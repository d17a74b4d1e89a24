#include "http/message/head_writer.h"

#include <string.h>
#include <time.h>

#include "base/encoding.h"
#include "http/message/cors.h"
#include "http/message/response.h"
#include "http/message/status.h"

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
