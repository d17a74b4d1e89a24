/* Frames; for their contracts see http.h. */
#include <stdlib.h>
#include <string.h>

#include "http/http.h"

struct gb_http_frame *gb_http_frame_new(uint64_t id, uint64_t topics, const char *owner, const char *about,
                                        const char *text, size_t len) {
    struct gb_http_frame *f = malloc(sizeof(*f) + len);

    if (!f)
        return NULL;
    atomic_init(&f->refs, 1);
    f->id = id;
    f->topics = topics;
    strncpy(f->owner, owner, sizeof(f->owner) - 1);
    f->owner[sizeof(f->owner) - 1] = '\0';
    strncpy(f->about, about, sizeof(f->about) - 1);
    f->about[sizeof(f->about) - 1] = '\0';
    f->len = len;
    memcpy(f->text, text, len);
    return f;
}

struct gb_http_frame *gb_http_frame_ref(struct gb_http_frame *frame) {
    atomic_fetch_add_explicit(&frame->refs, 1, memory_order_relaxed);
    return frame;
}

void gb_http_frame_unref(struct gb_http_frame *frame) {
    if (frame && atomic_fetch_sub_explicit(&frame->refs, 1, memory_order_acq_rel) == 1)
        free(frame);
}
