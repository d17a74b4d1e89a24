#include "api/list/link.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/reply/render.h"
#include "api/reply/reply_json.h"
#include "http/message/request.h"

#define ENCODED_SIZE 64 /* the name of a parameter has room, with each byte as %XX */

/* A client may have written what ends the target in a Link. */
static char *copy(char *to, const char *text, size_t n) {
    size_t i;

    for (i = 0; i < n; i++) {
        if (strchr("<>\"", text[i]))
            to += sprintf(to, "%%%02X", (unsigned char)text[i]);
        else
            *to++ = text[i];
    }
    return to;
}

/* part[0..n): NAME=VALUE, or NAME, whose bytes may be encoded. */
static bool is_parameter(const char *part, size_t n, const char *name) {
    const char *equals = memchr(part, '=', n);
    size_t len = equals ? (size_t)(equals - part) : n;
    char decoded[ENCODED_SIZE];

    return len < sizeof(decoded) && gb_percent_decode(part, len, decoded, &len) == 0 && strlen(name) == len &&
           memcmp(decoded, name, len) == 0;
}

/* Copies the query without the parameter of that name. Each part ends with '&'. Returns the end. */
static char *copy_others(char *to, const char *query, const char *name) {
    while (*query != '\0') {
        size_t n = strcspn(query, "&");

        if (n > 0 && !is_parameter(query, n, name)) {
            to = copy(to, query, n);
            *to++ = '&';
        }
        query += n + (query[n] != '\0');
    }
    return to;
}

int gb_list_link(const struct gb_http_request *request, const char *name, const char *value,
                 struct gb_http_response *response, struct gb_error *err) {
    const char *target = request->shown.s ? request->shown.s : request->target.s;
    size_t path = strcspn(target, "?");
    size_t size = 3 * strlen(target) + strlen(name) + strlen(value) + sizeof("<?&=>; rel=\"next\"");
    char *link = malloc(size);
    char *to;

    if (!link)
        return gb_error_set(err, GB_ERR_SATURATED, "no memory for the reply; try again later");
    *link = '<';
    to = copy(link + 1, target, path);
    *to++ = '?';
    to = copy_others(to, target + path + (target[path] == '?'), name);
    snprintf(to, size - (size_t)(to - link), "%s=%s>; rel=\"next\"", name, value);
    return gb_http_response_long_header(response, err, "Link", link);
}

enum gb_step gb_list_reply(const struct gb_http_request *request, struct gb_json_writer *out, const char *cursor,
                           struct gb_http_response *response, struct gb_error *err) {
    gb_render_list_close(out, cursor);
    if (!cursor || gb_list_link(request, "cursor", cursor, response, err) == 0)
        return gb_reply_json(out, 200, response, err);
    gb_json_done(out);
    return GB_STEP_ERROR;
}
