#include "core/checkpoint/hold.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "core/buffer/guard.h"

/* Buffers that are made while the room for the items is made. */
#define SPARE 64

/* --- one buffer --------------------------------------------------------------------------------------------------- */

static bool is_quiet(const struct gb_buffer *b) {
    return !b->rec.mapped_for_writing && !b->rec.tainted && !b->rec.adopted;
}

/* The disk has the bytes, as safe as those of a checkpoint are. */
static bool has_file(const struct gb_buffer *b) {
    const struct gb_stored *stored = b->stored;

    return b->rec.state == GB_BUFFER_READY && gb_buffer_on_disk(b) && !stored->spilled &&
           !gb_stored_inline(&stored->rec) && is_quiet(b);
}

static enum gb_checkpoint_way way_of(const struct gb_stored *stored) {
    if (stored->spilled)
        return GB_CHECKPOINT_COPY;
    return gb_stored_inline(&stored->rec) ? GB_CHECKPOINT_INLINE : GB_CHECKPOINT_LINK;
}

static int check_writers_locked(const struct gb_buffer *b, struct gb_error *err) {
    if (gb_guard_check_writers_locked(b, err) < 0)
        return -1;
    return gb_adopted_check_locked(b, "its bytes are no part of a checkpoint; copy them, or ask for unstable ones",
                                   err);
}

static int hold_locked(struct gb_session *s, const struct gb_checkpoint_params *params, const struct gb_name *name,
                       struct gb_checkpoint_item *ret, struct gb_error *err) {
    struct gb_buffer *b = gb_buffer_find_locked(s, name, err);

    *ret = (struct gb_checkpoint_item){.way = GB_CHECKPOINT_MEMORY};
    if (!b || (!params->unstable && check_writers_locked(b, err) < 0))
        return -1;
    if (b->rec.state != GB_BUFFER_STORED && !has_file(b))
        return gb_buffer_hold_locked(s, name, &ret->rec, &ret->content, err);
    if (atomic_load(&b->stored->damaged))
        return gb_error_set(err, GB_ERR_CONTENT_DAMAGED, "the stored bytes are damaged: upload the buffer again");
    ret->way = way_of(b->stored);
    ret->stored = gb_stored_ref(b->stored);
    gb_buffer_copy_locked(b, &ret->rec);
    return 0;
}

/* --- all of them -------------------------------------------------------------------------------------------------- */

struct holding {
    struct gb_session *session;
    const struct gb_checkpoint_params *params;
    struct gb_checkpoint_call *call;
    struct gb_checkpoint_hold hold;
};

/* A buffer that a process writes as it likes is left out unasked: it has no bytes of one moment. */
static int add_locked(struct holding *h, const struct gb_name *name, struct gb_error *err) {
    struct gb_error why = GB_ERROR_INIT;

    if (hold_locked(h->session, h->params, name, &h->hold.items[h->hold.count], &why) == 0) {
        h->hold.count++;
        return 0;
    }
    if (h->params->lenient || why.code == GB_ERR_MAPPED) {
        gb_checkpoint_skip(h->call->tell, &h->call->told, &h->call->skipped, name, why.code);
        return 0;
    }
    if (strstr(why.detail, name->s))
        return gb_error_move(err, &why);
    return gb_error_set(err, why.code, "\"%s\": %.200s", name->s, why.detail);
}

static int add_names_locked(struct holding *h, struct gb_error *err) {
    size_t i;

    for (i = 0; i < h->params->names.count; i++) {
        if (add_locked(h, &h->params->names.names[i], err) < 0)
            return -1;
    }
    return 0;
}

static int add_all_locked(struct holding *h, struct gb_error *err) {
    const char *prefix = h->params->prefix.s;
    struct gb_buffer *b;
    struct gb_name name;
    int64_t id = 0;

    while ((b = gb_idlist_after(&h->session->buffers_by_id, id, &id))) {
        if (!b->live || b->deleting || strncmp(b->name, prefix, strlen(prefix)) != 0)
            continue;
        strcpy(name.s, b->name);
        if (add_locked(h, &name, err) < 0)
            return -1;
    }
    return 0;
}

static size_t count_of(const struct holding *h) {
    size_t count;

    if (h->params->names.given)
        return h->params->names.count;
    pthread_mutex_lock(&h->session->lock);
    count = (size_t)h->session->live_buffers;
    pthread_mutex_unlock(&h->session->lock);
    return count;
}

/* 1: there are more buffers than there is room. */
static int hold_all(struct holding *h, size_t room, struct gb_error *err) {
    struct gb_session *s = h->session;
    int r;

    pthread_mutex_lock(&s->lock);
    r = gb_session_alive(s, err);
    if (r == 0 && !h->params->names.given && s->live_buffers > room)
        r = 1;
    h->hold.as_of_us = gb_wall_us() / 1000 * 1000; /* as the manifest tells it */
    if (r == 0)
        r = h->params->names.given ? add_names_locked(h, err) : add_all_locked(h, err);
    pthread_mutex_unlock(&s->lock);
    return r;
}

int gb_checkpoint_hold(struct gb_session *session, const struct gb_checkpoint_params *params,
                       struct gb_checkpoint_call *call, struct gb_checkpoint_hold *ret, struct gb_error *err) {
    struct holding h = {.session = session, .params = params, .call = call};
    size_t room;
    int r;

    call->told = 0;
    call->skipped = 0;
    do {
        free(h.hold.items);
        room = count_of(&h) + SPARE;
        h.hold.items = malloc(room * sizeof(*h.hold.items));
        r = h.hold.items ? hold_all(&h, room, err) : gb_no_memory(err);
    } while (r > 0);
    if (r < 0) {
        gb_checkpoint_hold_done(&h.hold);
        return -1;
    }
    *ret = h.hold;
    return 0;
}

bool gb_checkpoint_still(struct gb_session *session, const struct gb_checkpoint_item *item) {
    bool left;

    pthread_mutex_lock(&session->lock);
    left = gb_buffer_may_have_left_locked(session, &item->rec.name, item->stored);
    pthread_mutex_unlock(&session->lock);
    return !left;
}

void gb_checkpoint_release(struct gb_checkpoint_item *item) {
    gb_content_drop(item->content, NULL, NULL);
    gb_stored_unref(item->stored);
    item->content = NULL;
    item->stored = NULL;
}

void gb_checkpoint_hold_done(struct gb_checkpoint_hold *hold) {
    size_t i;

    for (i = 0; i < hold->count; i++) {
        gb_checkpoint_release(&hold->items[i]);
        gb_buffer_rec_done(&hold->items[i].rec);
    }
    free(hold->items);
    *hold = (struct gb_checkpoint_hold){.count = 0};
}
