/* What a buffer's last large transfer took. */
#include "core/buffer/buffer.h"
#include "core/public/buffer.h"

static void read_locked(const struct gb_buffer *b, struct gb_last_transfer *ret) {
    int i;

    *ret = (struct gb_last_transfer){.bytes = 0};
    for (i = 0; i < GB_BUFFER_CONTENTS; i++) {
        const struct gb_content *c = gb_buffer_content_at(b, i);

        if (c && c->last && (ret->bytes == 0 || c->last->finished_at_us > ret->finished_at_us))
            *ret = *c->last;
    }
}

int gb_buffer_last_transfer(struct gb_core *core, const struct gb_locator *at, struct gb_last_transfer *ret,
                            struct gb_error *err) {
    struct gb_session *s = gb_session_use(core, &at->session, err);
    struct gb_buffer *b;

    if (!s)
        return -1;
    pthread_mutex_lock(&s->lock);
    b = gb_session_alive(s, err) < 0 ? NULL : gb_buffer_find_locked(s, &at->name, err);
    if (b)
        read_locked(b, ret);
    pthread_mutex_unlock(&s->lock);
    gb_session_unref(s);
    return b ? 0 : -1;
}
