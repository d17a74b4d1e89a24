#include "core/content.h"

#include <stdlib.h>

#include "core/kind.h"
#include "core/session.h"

#define FREE_TRIES 3

int gb_content_new_locked(struct gb_session *session, int device, enum gb_kind kind, uint64_t bytes,
                          struct gb_content **ret, struct gb_error *err) {
    struct gb_content *c = calloc(1, sizeof(*c));

    if (!c)
        return gb_no_memory(err);
    if (gb_quota_take_locked(session, bytes, 0, err) < 0) {
        free(c);
        return -1;
    }
    if (kind == GB_KIND_PINNED && gb_quota_take_pinned_locked(session, bytes, err) < 0) {
        gb_quota_give_locked(session, bytes, 0);
        free(c);
        return -1;
    }
    atomic_init(&c->refs, 1);
    c->session = gb_session_ref(session);
    c->device = &session->core->devices[device];
    c->kind = kind;
    c->bytes = bytes;
    *ret = c;
    return 0;
}

struct gb_content *gb_content_ref(struct gb_content *content) {
    atomic_fetch_add(&content->refs, 1);
    return content;
}

void gb_content_end(struct gb_content *c) {
    struct gb_session *session = c->session;

    gb_events_give(&c->device->events, c->ready);
    gb_events_give(&c->device->events, c->used);
    pthread_mutex_lock(&session->lock);
    gb_quota_give_locked(session, c->bytes, 0);
    if (c->kind == GB_KIND_PINNED)
        gb_quota_give_pinned_locked(session, c->bytes);
    pthread_mutex_unlock(&session->lock);
    if (c->then)
        c->then(c->then_arg);
    gb_session_unref(session);
    free(c);
}

/* On the lane. A free that fails on a living device would leak for ever, so it is tried again. */
static void free_memory(struct gb_task *task) {
    struct gb_content *c = (struct gb_content *)((char *)task - offsetof(struct gb_content, task));
    struct gb_core_device *device = c->device;
    struct gb_core *core = device->core;
    bool freed = false;
    int tries;

    for (tries = 0; tries < FREE_TRIES; tries++) {
        struct gb_error err = GB_ERROR_INIT;

        freed = gb_mem_free(core->backend, c->ptr, c->stream, &err) == 0;
        if (freed)
            break;
        gb_core_note(core, &err);
        if (gb_backend_dead(core->backend, NULL))
            break;
    }
    if (freed) {
        atomic_fetch_add(&device->frees, 1);
        GB_TALLY(core, c->session, frees, 1);
        GB_TALLY(core, c->session, freed_bytes, c->bytes);
    }
    device->memory_freed = true;
    gb_core_refresh_pool(device);
    gb_core_changed(core);
    gb_content_end(c);
}

void gb_content_drop(struct gb_content *content, void (*then)(void *arg), void *arg) {
    struct gb_core_device *device;

    if (!content || atomic_fetch_sub(&content->refs, 1) != 1) {
        if (then)
            then(arg);
        return;
    }
    content->then = then;
    content->then_arg = arg;
    if (!content->ptr) {
        gb_content_end(content);
        return;
    }
    if (content->kind != GB_KIND_DEVICE) {
        gb_kind_free_start(content);
        return;
    }
    content->task.run = free_memory;
    device = content->device;
    /* As with allocations: see alloc.c. */
    if (device->rec.cpu_access && gb_lane_enter(&device->lane)) {
        free_memory(&content->task);
        gb_lane_leave(&device->lane, device->starved != NULL);
        return;
    }
    gb_lane_post(&device->lane, &content->task);
}

void gb_content_drop_all(struct gb_content *list) {
    struct gb_content *next;

    for (; list; list = next) {
        next = list->next;
        gb_content_drop(list, NULL, NULL);
    }
}
