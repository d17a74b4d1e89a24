#include "http/mhd/handoff_queue.h"

#include <limits.h>
#include <stdlib.h>

#include "http/mhd/loop.h"

static int put(struct gb_handoff_queue *a, const struct gb_handoff *handoff) {
    int r = 0;

    pthread_mutex_lock(&a->lock);
    if (a->count == a->size) {
        size_t size = a->size ? a->size * 2 : 64;
        struct gb_handoff *bigger = realloc(a->list, size * sizeof(*bigger));

        if (bigger) {
            a->list = bigger;
            a->size = size;
        } else {
            r = -1;
        }
    }
    if (r == 0)
        a->list[a->count++] = *handoff;
    pthread_mutex_unlock(&a->lock);
    return r;
}

bool gb_handoff_take(struct gb_handoff_queue *a, struct gb_handoff *ret) {
    bool any;

    pthread_mutex_lock(&a->lock);
    any = a->count > 0;
    if (any)
        *ret = a->list[--a->count];
    pthread_mutex_unlock(&a->lock);
    return any;
}

void gb_loop_give(struct gb_loop *loop, const struct gb_handoff *handoff) {
    atomic_fetch_add(&loop->load, 1);
    if (put(&loop->handoffs, handoff) < 0) {
        atomic_fetch_sub(&loop->load, 1);
        if (handoff->squeezed)
            atomic_fetch_sub(&loop->server->squeezed, 1);
        gb_handoff_end(&loop->server->places, handoff);
        return;
    }
    gb_wake_queue_signal(&loop->exchanges.wake_queue);
}

static unsigned load_of(const struct gb_loop *loop) {
    return atomic_load(&loop->load) + atomic_load(&loop->own.load);
}

struct gb_loop *gb_loop_pick(struct gb_http_server *server, struct gb_loop *own) {
    struct gb_loop *best = own ? own : &server->loops[0];
    unsigned i;

    for (i = 0; i < server->config.loops; i++) {
        if (load_of(&server->loops[i]) < load_of(best))
            best = &server->loops[i];
    }
    return best;
}

/* A body under way keeps its thread busy: it weighs more than all connections that may stay together. */
static unsigned weight_of(const struct gb_loop *loop, unsigned slack) {
    return atomic_load(&loop->load) + atomic_load(&loop->own.load) * (slack + 1);
}

struct gb_loop *gb_loop_fill(struct gb_http_server *server, unsigned slack) {
    unsigned least = UINT_MAX;
    unsigned i;

    for (i = 0; i < server->config.loops; i++) {
        unsigned weight = weight_of(&server->loops[i], slack);

        least = weight < least ? weight : least;
    }
    for (i = 0; i + 1 < server->config.loops && weight_of(&server->loops[i], slack) > least + slack; i++)
        ;
    return &server->loops[i];
}
