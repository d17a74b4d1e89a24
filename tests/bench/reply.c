#include "reply.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* The value when the line (line..eol) is the field `name:`; NULL otherwise. */
static const char *field(const char *line, const char *eol, const char *name, size_t name_len) {
    if ((size_t)(eol - line) <= name_len || line[name_len] != ':' || strncasecmp(line, name, name_len))
        return NULL;
    line += name_len + 1;
    while (line < eol && *line == ' ')
        line++;
    return line;
}

int bench_reply_parse(const char *data, size_t bytes, struct bench_reply *ret) {
    const char *end = memmem(data, bytes, "\r\n\r\n", 4);
    const char *line;
    const char *value;
    bool has_length = false;

    if (!end)
        return 0;
    if (bytes < 12 || strncmp(data, "HTTP/1.1 ", 9))
        return -1;
    ret->status = atoi(data + 9);
    ret->length = 0;
    ret->close = false;
    ret->etag[0] = '\0';
    for (line = data; line < end;) {
        const char *eol = memchr(line, '\r', (size_t)(end - line) + 1);

        /* The length is compared first: this runs once per poll and must cost the client little. */
        if ((value = field(line, eol, "Content-Length", 14))) {
            ret->length = strtoull(value, NULL, 10);
            has_length = true;
        } else if ((value = field(line, eol, "Connection", 10))) {
            ret->close = (size_t)(eol - value) == 5 && !strncasecmp(value, "close", 5);
        } else if ((value = field(line, eol, "ETag", 4)) && (size_t)(eol - value) < BENCH_ETAG_MAX) {
            memcpy(ret->etag, value, (size_t)(eol - value));
            ret->etag[eol - value] = '\0';
        }
        line = eol + 2;
    }
    if (ret->status < 200 || ret->status == 204 || ret->status == 304)
        ret->length = 0;
    else if (!has_length)
        return -1;
    return (int)(end - data) + 4;
}
