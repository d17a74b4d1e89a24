/* The headers of answers. */
#include "base/encoding.h"
#include "client/client.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

void gbc_reply_clear(struct gbc_reply *reply) {
    struct gbc_reply kept = *reply;

    memset(reply, 0, sizeof(*reply));
    reply->body = kept.body;
    reply->type = kept.type;
    reply->location = kept.location;
    gbc_text_clear(&reply->body);
    gbc_text_clear(&reply->type);
    gbc_text_clear(&reply->location);
}

void gbc_reply_done(struct gbc_reply *reply) {
    gbc_text_done(&reply->body);
    gbc_text_done(&reply->type);
    gbc_text_done(&reply->location);
}

static struct gpubuf_opt decimal(const char *text) {
    struct gpubuf_opt none = {false, 0};
    char *end;
    uint64_t value;

    if (*text < '0' || *text > '9')
        return none;
    value = strtoull(text, &end, 10);
    return *end == '\0' || *end == '-' || *end == '/' ? gpubuf_some(value) : none;
}

static struct gpubuf_opt hexadecimal(const char *text) {
    struct gpubuf_opt none = {false, 0};
    uint32_t value;

    return gb_hex_u32(text, strlen(text), &value) ? gpubuf_some(value) : none;
}

/* bytes 0-10/16508 */
static void content_range(struct gbc_reply *reply, const char *value) {
    const char *slash = strchr(value, '/');

    if (strncasecmp(value, "bytes ", 6) != 0 || !slash)
        return;
    reply->range_first = decimal(value + 6);
    reply->whole = decimal(slash + 1);
}

/* "requests";r=0;t=1: of the bounds of a client only rates pass by themselves. */
static bool names_rate(const char *value) {
    return strncmp(value, "\"requests\"", 10) == 0 || strncmp(value, "\"bytes\"", 7) == 0;
}

static void take(struct gbc_reply *reply, const char *name, const char *value) {
    if (strcasecmp(name, "Content-Type") == 0)
        gbc_text_add(&reply->type, value, strlen(value));
    else if (strcasecmp(name, "Location") == 0)
        gbc_text_add(&reply->location, value, strlen(value));
    else if (strcasecmp(name, "ETag") == 0)
        gbc_copy(reply->etag, sizeof(reply->etag), value);
    else if (strcasecmp(name, "Content-Length") == 0)
        reply->length = decimal(value);
    else if (strcasecmp(name, "Content-Range") == 0)
        content_range(reply, value);
    else if (strcasecmp(name, "Server-Timing") == 0)
        gbc_copy(reply->timing, sizeof(reply->timing), value);
    else if (strcasecmp(name, "Gpubuf-Dtype") == 0)
        gbc_copy(reply->dtype, sizeof(reply->dtype), value);
    else if (strcasecmp(name, "Gpubuf-Shape") == 0)
        gbc_copy(reply->shape, sizeof(reply->shape), value);
    else if (strcasecmp(name, "Gpubuf-Generation") == 0)
        reply->generation = decimal(value);
    else if (strcasecmp(name, "Gpubuf-Crc32c") == 0)
        reply->crc32c = hexadecimal(value);
    else if (strcasecmp(name, "Gpubuf-Epoch") == 0)
        reply->epoch = decimal(value);
    else if (strcasecmp(name, "Upload-Offset") == 0)
        reply->upload_offset = decimal(value);
    else if (strcasecmp(name, "Upload-Complete") == 0)
        reply->upload_complete = strcmp(value, "?1") == 0;
    else if (strcasecmp(name, "Retry-After") == 0)
        reply->retry_after_s = atoi(value);
    else if (strcasecmp(name, "RateLimit") == 0)
        reply->rate_limited = names_rate(value);
}

void gbc_reply_line(struct gbc_reply *reply, const char *line, size_t bytes, bool *ret_end) {
    char text[8192]; /* a Location has a name, a query and a ticket */
    char *colon;

    while (bytes > 0 && (line[bytes - 1] == '\r' || line[bytes - 1] == '\n' || line[bytes - 1] == ' '))
        bytes--;
    if (bytes == 0) {
        *ret_end = reply->status >= 200;
        return;
    }
    if (bytes >= sizeof(text)) /* none of ours is as long */
        return;
    memcpy(text, line, bytes);
    text[bytes] = '\0';
    if (strncmp(text, "HTTP/", 5) == 0) {
        const char *blank = strchr(text, ' ');

        gbc_reply_clear(reply);
        reply->status = blank ? atoi(blank + 1) : 0;
        return;
    }
    colon = strchr(text, ':');
    if (!colon)
        return;
    *colon++ = '\0';
    take(reply, text, colon + strspn(colon, " \t"));
}
