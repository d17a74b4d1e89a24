#include "http/mhd/handoff_queue.h"

#include <limits.h>
#include <stdlib.h>

#include "base/thread.h"
#include "http/mhd/loop.h"

/* Requests with at most that many bytes stay together on a loop until it has no time left. */
#define SMALL_BYTES (128 * 1024)
#define BUSY_PERCENT 85

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

static unsigned least_load(const struct gb_http_server *server) {
    unsigned least = UINT_MAX;
    unsigned i;

    for (i = 0; i < server->config.loops; i++)
        least = load_of(&server->loops[i]) < least ? load_of(&server->loops[i]) : least;
    return least;
}

/* Small requests that are carried out together share a commit, and their loop is woken once for them. */
bool gb_loop_crowded(struct gb_loop *loop, uint64_t bytes) {
    if (bytes > SMALL_BYTES)
        return least_load(loop->server) + 1 < load_of(loop);
    if (loop->surplus == 0)
        return false;
    loop->surplus--;
    return true;
}

void gb_loop_weigh(struct gb_loop *loop, uint64_t now_ns) {
    uint64_t cpu_ns = gb_thread_cpu_ns();
    unsigned load = load_of(loop);
    unsigned least = least_load(loop->server);

    loop->surplus = 0;
    if ((cpu_ns - loop->weighed_cpu_ns) * 100 > (now_ns - loop->weighed_ns) * BUSY_PERCENT && load > least + 1)
        loop->surplus = (load - least) / 2;
    loop->weighed_cpu_ns = cpu_ns;
    loop->weighed_ns = now_ns;
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
