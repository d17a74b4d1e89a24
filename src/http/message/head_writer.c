#include "http/message/head_writer.h"

#include <stdarg.h>
#include <stdio.h>
#include <time.h>

#include "http/message/response.h"
#include "http/message/status.h"

struct out {
    char *s;
    size_t size;
    size_t used;
    bool full;
};

static void add(struct out *o, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

static void add(struct out *o, const char *fmt, ...) {
    va_list ap;
    int n;

    if (o->full)
        return;
    va_start(ap, fmt);
    n = vsnprintf(o->s + o->used, o->size - o->used, fmt, ap);
    va_end(ap);
    if (n < 0 || (size_t)n >= o->size - o->used)
        o->full = true;
    else
        o->used += (size_t)n;
}

static void add_date(struct out *o) {
    static const char *const days[] = {"Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat"};
    static const char *const months[] = {"Jan", "Feb", "Mar", "Apr", "May", "Jun",
                                         "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"};
    time_t now = time(NULL);
    struct tm tm;

    /* Not strftime: its names follow the locale. */
    gmtime_r(&now, &tm);
    add(o, "Date: %s, %02d %s %d %02d:%02d:%02d GMT\r\n", days[tm.tm_wday], tm.tm_mday, months[tm.tm_mon],
        tm.tm_year + 1900, tm.tm_hour, tm.tm_min, tm.tm_sec);
}

size_t gb_head_write(const struct gb_http_request *request, const struct gb_http_response *response, uint64_t body_len,
                     bool close, char *out, size_t size) {
    struct out o = {.s = out, .size = size};
    int status = response->status;
    unsigned i;

    add(&o, "HTTP/1.1 %d %s\r\n", status, gb_http_reason(status));
    add_date(&o);
    if (gb_reply_is_read(request))
        add(&o, "%s", GB_EVERY_REPLY_LINES);
    for (i = 0; i < response->headers; i++)
        add(&o, "%s: %s\r\n", response->header[i].name, response->header[i].value);
    if (status != 204 && status != 304 && body_len != GB_HEAD_UNTIL_END)
        add(&o, "Content-Length: %llu\r\n", (unsigned long long)body_len);
    if (close)
        add(&o, "Connection: close\r\n");
    else if (request->http10)
        add(&o, "Connection: keep-alive\r\n");
    add(&o, "\r\n");
    return o.full ? 0 : o.used;
}
