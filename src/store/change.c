#include "store/change.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"

/* The labels that the copy of a record has a reference to. */
static struct gb_text *labels_of(const struct gb_change *c) {
    switch (c->kind) {
    case GB_CHANGE_PUT_SESSION:
        return ((const struct gb_session_rec *)c->record)->labels;
    case GB_CHANGE_PUT_BUFFER:
        return ((const struct gb_buffer_rec *)c->record)->labels;
    default:
        return NULL;
    }
}

static bool is_durable(const struct gb_change *c) {
    const struct gb_store_edits *record = (const struct gb_store_edits *)c->record;
    size_t i;

    if (c->kind == GB_CHANGE_DEL_SESSION)
        return ((const struct gb_session_deletion *)c->record)->durable;
    if (c->kind == GB_CHANGE_PUT_ANSWER)
        return ((const struct gb_idempotency_reply_record *)c->record)->durable;
    for (i = 0; c->kind == GB_CHANGE_EDIT_BUFFERS && i < record->count; i++) {
        if (record->edits[i].durable)
            return true;
    }
    return false;
}

struct gb_change *gb_change_new(enum gb_change_kind kind, const void *record, size_t bytes,
                                const struct gb_store_mark *mark, gb_store_done_fn *done, void *arg) {
    size_t mark_at = (bytes + alignof(max_align_t) - 1) / alignof(max_align_t) * alignof(max_align_t);
    struct gb_change *c = malloc(sizeof(*c) + mark_at + (mark ? sizeof(*mark) : 0));

    if (!c)
        return NULL;
    *c = (struct gb_change){.kind = kind, .done = done, .arg = arg, .queued_ns = gb_clock_ns()};
    if (mark) {
        c->mark = (struct gb_store_mark *)(c->record + mark_at);
        *c->mark = *mark;
    }
    if (bytes > 0)
        memcpy(c->record, record, bytes);
    c->durable = is_durable(c);
    gb_text_ref(labels_of(c));
    return c;
}

void gb_change_free(struct gb_change *change) {
    if (change)
        gb_text_unref(labels_of(change));
    free(change);
}

void gb_change_refuse(struct gb_change *change) {
    gb_text_unref(labels_of(change));
    change->kind = GB_CHANGE_REFUSED;
}

bool gb_change_writes(const struct gb_change *change) {
    return change->kind != GB_CHANGE_FLUSH && change->kind != GB_CHANGE_REFUSED;
}

bool gb_change_is_long(const struct gb_change *change) {
    switch (change->kind) {
    case GB_CHANGE_DEL_SESSION:  /* with its buffers; may be durable */
    case GB_CHANGE_EDIT_BUFFERS: /* may be durable */
    case GB_CHANGE_PUT_HISTORY:
    case GB_CHANGE_ROLL:
        return true;
    case GB_CHANGE_PUT_ANSWER:
        return change->durable;
    default:
        return false;
    }
}
