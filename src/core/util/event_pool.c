#include "core/util/event_pool.h"

#include <stdlib.h>

#include "base/thread.h"

void gb_event_pool_init(struct gb_event_pool *events, struct gb_backend *backend, int device) {
    *events = (struct gb_event_pool){.backend = backend, .device = device, .ready = true};
    gb_mutex_init(&events->lock);
}

void gb_event_pool_done(struct gb_event_pool *events) {
    struct gb_ev *next;
    struct gb_ev *ev;

    if (!events->ready)
        return;
    for (ev = events->first; ev; ev = next) {
        next = ev->next;
        gb_event_destroy(events->backend, ev->event);
        free(ev);
    }
    pthread_mutex_destroy(&events->lock);
    events->ready = false;
}

struct gb_ev *gb_event_pool_take(struct gb_event_pool *events, struct gb_error *err) {
    struct gb_ev *ev;

    pthread_mutex_lock(&events->lock);
    ev = events->first;
    if (ev)
        events->first = ev->next;
    pthread_mutex_unlock(&events->lock);
    if (ev)
        return ev;
    ev = calloc(1, sizeof(*ev));
    if (!ev) {
        gb_error_set(err, GB_ERR_INTERNAL, "out of memory");
        return NULL;
    }
    if (gb_event_create(events->backend, events->device, &ev->event, err) < 0) {
        free(ev);
        return NULL;
    }
    return ev;
}

void gb_event_pool_give(struct gb_event_pool *events, struct gb_ev *ev) {
    if (!ev)
        return;
    pthread_mutex_lock(&events->lock);
    ev->next = events->first;
    events->first = ev;
    pthread_mutex_unlock(&events->lock);
}
