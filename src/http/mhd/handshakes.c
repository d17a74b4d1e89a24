#include "http/mhd/handshakes.h"

#include <stddef.h>

#include "base/clock.h"
#include "http/mhd/loop.h"

/* One that has gone on for less is not ended for the sake of a newcomer. */
#define YOUNG_NS (100 * GB_NS_PER_MS)

static void publish(struct gb_handshakes *all) {
    atomic_store_explicit(&all->since_ns, all->first ? all->first->since_ns : 0, memory_order_relaxed);
}

void gb_handshake_enter(struct gb_handshakes *all, struct gb_handshake *one) {
    *one = (struct gb_handshake){.prev = all->last, .since_ns = gb_clock_ns(), .listed = true};
    if (all->last)
        all->last->next = one;
    else
        all->first = one;
    all->last = one;
    if (all->first == one)
        publish(all);
}

void gb_handshake_leave(struct gb_handshakes *all, struct gb_handshake *one) {
    if (!one->listed)
        return;
    one->listed = false;
    if (one->next)
        one->next->prev = one->prev;
    else
        all->last = one->prev;
    if (one->prev) {
        one->prev->next = one->next;
    } else {
        all->first = one->next;
        publish(all);
    }
}

struct gb_loop *gb_handshakes_oldest(struct gb_http_server *server) {
    uint64_t oldest_ns = gb_clock_ns() - YOUNG_NS;
    struct gb_loop *best = NULL;
    unsigned i;

    for (i = 0; i < server->config.loops; i++) {
        uint64_t since_ns = atomic_load_explicit(&server->loops[i].handshakes.since_ns, memory_order_relaxed);

        if (since_ns != 0 && since_ns < oldest_ns) {
            oldest_ns = since_ns;
            best = &server->loops[i];
        }
    }
    return best;
}

struct gb_handshake *gb_handshakes_first(const struct gb_handshakes *all) {
    return all->first && gb_clock_ns() - all->first->since_ns >= YOUNG_NS ? all->first : NULL;
}
