#include "http/message/response.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "http/message/canned.h"

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

bool gb_response_has(const struct gb_http_response *response, const char *name) {
    unsigned i;

    for (i = 0; i < response->headers; i++) {
        if (strcmp(response->header[i].name, name) == 0)
            return true;
    }
    return false;
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
