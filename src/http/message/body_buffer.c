#include <stdlib.h>

#include "http/exchange/exchange.h"

struct buffer {
    struct gb_http_sink sink;
    char *data;
    size_t used;
    size_t size;
    size_t max;
};

static int room(struct gb_http_sink *sink, void **ret_ptr, size_t *ret_n, struct gb_error *err) {
    struct buffer *c = (struct buffer *)sink;

    if (c->used == c->max)
        return gb_error_set(err, GB_ERR_BODY_TOO_LARGE, "the body is larger than %zu bytes", c->max);
    if (c->used == c->size) {
        size_t size = c->size ? c->size * 2 : 1024;
        char *bigger;

        if (size > c->max)
            size = c->max;
        bigger = realloc(c->data, size + 1); /* one more for the NUL */
        if (!bigger)
            return gb_error_set(err, GB_ERR_SATURATED, "no memory for the body; try again later");
        c->data = bigger;
        c->size = size;
    }
    *ret_ptr = c->data + c->used;
    *ret_n = c->size - c->used;
    return 1;
}

static int fill(struct gb_http_sink *sink, size_t n, struct gb_error *err) {
    (void)err;
    ((struct buffer *)sink)->used += n;
    return 0;
}

void gb_body_buffer_end(struct gb_http_sink *sink, struct gb_http_request *request) {
    struct buffer *c = (struct buffer *)sink;

    if (c->data) {
        c->data[c->used] = '\0';
        request->body = c->data;
        request->body_len = c->used;
    }
}

static void release(struct gb_http_sink *sink) {
    struct buffer *c = (struct buffer *)sink;

    free(c->data);
    free(c);
}

struct gb_http_sink *gb_body_buffer_new(size_t max) {
    struct buffer *c = calloc(1, sizeof(*c));

    if (!c)
        return NULL;
    c->sink = (struct gb_http_sink){.room = room, .fill = fill, .free = release};
    c->max = max;
    return &c->sink;
}
