#include "http/message/body_buffer.h"

#include <stdlib.h>

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
            return gb_error_set(err, GB_ERR_SATURATED, "no memory for the body; try again later");
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
