/* Buffers in memory: their places, their sums. */
#include <stdlib.h>

#include "core/session.h"

struct gb_buffer *gb_buffer_find_locked(struct gb_session *session, const struct gb_name *name, struct gb_error *err) {
    struct gb_buffer *b = gb_map_get(&session->buffers, name->s);

    if (b && b->live && !b->deleting)
        return b;
    gb_error_set(err, GB_ERR_BUFFER_NOT_FOUND, "session \"%s\" has no buffer named \"%s\"", session->name.s, name->s);
    return NULL;
}

int gb_buffer_hold_locked(struct gb_session *session, const struct gb_name *name, struct gb_buffer_rec *ret_rec,
                          struct gb_content **ret_content, struct gb_error *err) {
    struct gb_buffer *b = gb_buffer_find_locked(session, name, err);

    if (!b)
        return -1;
    if (b->in_place)
        return gb_error_set(err, GB_ERR_BUFFER_BUSY, "the buffer is being overwritten in place; try again");
    if (b->rec.state == GB_BUFFER_PARTIAL)
        return gb_error_set(err, GB_ERR_BUFFER_PARTIAL,
                            "a write in place broke off here; upload the whole buffer again");
    if (b->rec.state == GB_BUFFER_LOST || !b->content)
        return gb_error_set(err, GB_ERR_CONTENT_LOST, "the bytes of \"%s\" are lost; upload it again", name->s);
    *ret_rec = b->rec;
    *ret_content = gb_content_ref(b->content);
    return 0;
}

static void count_in(struct gb_session *session, const struct gb_buffer *b) {
    struct gb_core *core = session->core;

    session->live_buffers++;
    atomic_fetch_add(&core->live_buffers, 1);
    if (b->rec.state == GB_BUFFER_LOST) {
        session->lost_buffers++;
        atomic_fetch_add(&core->lost_buffers, 1);
    } else {
        atomic_fetch_add(&core->buffer_bytes, b->rec.bytes);
    }
}

static void count_out(struct gb_session *session, const struct gb_buffer *b) {
    struct gb_core *core = session->core;

    session->live_buffers--;
    atomic_fetch_sub(&core->live_buffers, 1);
    if (b->rec.state == GB_BUFFER_LOST) {
        session->lost_buffers--;
        atomic_fetch_sub(&core->lost_buffers, 1);
    } else {
        atomic_fetch_sub(&core->buffer_bytes, b->rec.bytes);
    }
}

struct gb_content *gb_buffer_set_locked(struct gb_session *session, struct gb_buffer *buffer,
                                        const struct gb_buffer_rec *rec, struct gb_content *content) {
    struct gb_content *old = buffer->content;

    if (buffer->live)
        count_out(session, buffer);
    buffer->rec = *rec;
    buffer->content = content;
    buffer->live = true;
    count_in(session, buffer);
    if (old != content) {
        if (content)
            gb_content_attach_locked(content);
        if (old)
            gb_content_detach_locked(old);
    }
    return old == content ? NULL : old;
}

/* All but the list. */
static struct gb_content *clear(struct gb_session *session, struct gb_buffer *buffer) {
    struct gb_content *content = buffer->content;

    count_out(session, buffer);
    gb_quota_give_locked(session, 0, 1);
    if (content)
        gb_content_detach_locked(content);
    buffer->content = NULL;
    buffer->live = false;
    buffer->deleting = false;
    buffer->in_place = false;
    return content;
}

struct gb_content *gb_buffer_clear_locked(struct gb_session *session, struct gb_buffer *buffer) {
    gb_idlist_take(&session->buffers_by_id, buffer->id);
    buffer->id = 0;
    return clear(session, buffer);
}

struct gb_content *gb_buffer_lose_locked(struct gb_session *session, struct gb_buffer *buffer) {
    struct gb_buffer_rec rec = buffer->rec;

    rec.state = GB_BUFFER_LOST;
    rec.version++;
    buffer->in_place = false;
    return gb_buffer_set_locked(session, buffer, &rec, NULL);
}

struct gb_content *gb_session_clear_locked(struct gb_session *session) {
    struct gb_content *list = NULL;
    struct gb_buffer *b;
    size_t at = 0;

    /* The list as a whole: taking thousands out one by one would move the rest each time. Places whose first record is
     * on the way to the database are taken out by the change that brought them. */
    while ((b = gb_map_next(&session->buffers, &at))) {
        struct gb_content *content;

        if (!b->live)
            continue;
        content = clear(session, b);
        if (content) {
            content->next = list;
            list = content;
        }
        b->id = 0;
        gb_buffer_reap_locked(session, b);
    }
    session->buffers_by_id.count = 0;
    for (at = 0; (b = gb_map_next(&session->buffers, &at));) {
        if (b->id != 0)
            gb_idlist_put(&session->buffers_by_id, b->id, b); /* the room is there */
    }
    return list;
}

void gb_buffer_reap_locked(struct gb_session *session, struct gb_buffer *buffer) {
    if (buffer->live || buffer->turns.taken)
        return;
    gb_map_take(&session->buffers, buffer->name.s);
    free(buffer);
}
