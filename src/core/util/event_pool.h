/* Events of one device, kept for reuse, because creating one is not free. */
#ifndef GB_CORE_UTIL_EVENT_POOL_H
#define GB_CORE_UTIL_EVENT_POOL_H

#include <pthread.h>
#include <stdbool.h>

#include "backend/backend.h"

struct gb_ev {
    struct gb_ev *next;
    struct gb_event *event;
};

struct gb_event_pool {
    struct gb_backend *backend;
    int device;
    pthread_mutex_t lock;
    bool ready;
    struct gb_ev *first;
};

void gb_event_pool_init(struct gb_event_pool *events, struct gb_backend *backend, int device);

/* All events must have been given back. A zeroed pool is accepted. */
void gb_event_pool_done(struct gb_event_pool *events);

/* NULL, with err set, if the device makes none. */
struct gb_ev *gb_event_pool_take(struct gb_event_pool *events, struct gb_error *err);

/* Gives an event back; no watch on it may be pending. NULL is accepted. [any thread, never blocks] */
void gb_event_pool_give(struct gb_event_pool *events, struct gb_ev *ev);

#endif
