#include "api/list/link.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/reply/render.h"
#include "api/reply/reply_json.h"

/* Copies the query without the parameter of that name. Each part ends with '&'. Returns the end. */
static char *copy_others(char *to, const char *query, const char *name) {
    size_t len = strlen(name);

    while (*query != '\0') {
        size_t n = strcspn(query, "&");

        if (n > 0 && (strncmp(query, name, len) != 0 || (query[len] != '=' && len != n))) {
            to = mempcpy(to, query, n);
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
    size_t size = strlen(target) + strlen(name) + strlen(value) + sizeof("<?&=>; rel=\"next\"");
    char *link = malloc(size);
    char *to;

    if (!link)
        return gb_error_set(err, GB_ERR_SATURATED, "no memory for the reply; try again later");
    to = link + snprintf(link, size, "<%.*s?", (int)path, target);
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
