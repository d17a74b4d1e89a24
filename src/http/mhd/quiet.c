/* Each loop lists its own connections in the order in which they fell quiet; those that have had no request apart from
 * those that have. Other loops read only the time since when the first of each list has been quiet. */
#include "http/mhd/quiet.h"

#include <sys/socket.h>

#include "base/clock.h"
#include "http/mhd/front.h"

/* The header of a client that has just connected is on its way, and a client that polls is not idle. */
#define QUIET_NS GB_NS_PER_S

/* Connections to check before the newcomer is refused. */
#define TRIES 16

static struct gb_quiet *list_of(struct gb_loop *loop, const struct gb_conn *c) {
    return &loop->quiet[c->local][c->asked];
}

static void publish(struct gb_quiet *quiet) {
    atomic_store_explicit(&quiet->since_ns, quiet->first ? quiet->first->idle_ns : 0, memory_order_relaxed);
}

void gb_quiet_enter(struct gb_loop *loop, struct gb_conn *c) {
    struct gb_quiet *quiet = list_of(loop, c);

    if (gb_peer_busy(c->peer))
        return;
    c->quiet = true;
    c->quiet_next = NULL;
    c->quiet_prev = quiet->last;
    if (quiet->last)
        quiet->last->quiet_next = c;
    else
        quiet->first = c;
    quiet->last = c;
    if (quiet->first == c)
        publish(quiet);
}

void gb_quiet_leave(struct gb_loop *loop, struct gb_conn *c) {
    struct gb_quiet *quiet = list_of(loop, c);

    if (!c->quiet)
        return;
    c->quiet = false;
    if (c->quiet_next)
        c->quiet_next->quiet_prev = c->quiet_prev;
    else
        quiet->last = c->quiet_prev;
    if (c->quiet_prev) {
        c->quiet_prev->quiet_next = c->quiet_next;
    } else {
        quiet->first = c->quiet_next;
        publish(quiet);
    }
}

/* Returns the loop that has the longest quiet connection of that kind, or NULL. */
static struct gb_loop *longest_of(struct gb_http_server *server, bool local, bool asked, uint64_t now_ns) {
    uint64_t longest_ns = now_ns - QUIET_NS;
    struct gb_loop *best = NULL;
    unsigned i;

    for (i = 0; i < server->config.loops; i++) {
        struct gb_quiet *quiet = &server->loops[i].quiet[local][asked];
        uint64_t since_ns = atomic_load_explicit(&quiet->since_ns, memory_order_relaxed);

        if (since_ns != 0 && since_ns <= longest_ns) {
            longest_ns = since_ns;
            best = &server->loops[i];
        }
    }
    return best;
}

struct gb_loop *gb_quiet_longest(struct gb_http_server *server, bool local) {
    uint64_t now_ns = gb_clock_ns();
    struct gb_loop *best = NULL;
    int asked;

    /* The place of a UNIX socket is of no use for TCP. */
    for (asked = 0; asked < 2 && !best; asked++) {
        best = longest_of(server, false, asked, now_ns);
        if (!best && local)
            best = longest_of(server, true, asked, now_ns);
    }
    return best;
}

/* A request that has come and was not read yet will be answered. */
static bool has_bytes(const struct gb_conn *c) {
    char byte;

    return recv(c->fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT) > 0;
}

static bool first_of(struct gb_loop *loop, struct gb_quiet *quiet, uint64_t now_ns) {
    struct gb_conn *c = quiet->first;
    int i;

    for (i = 0; c && i < TRIES && now_ns - c->idle_ns >= QUIET_NS; i++, c = c->quiet_next) {
        if (gb_peer_busy(c->peer) || has_bytes(c))
            continue;
        gb_quiet_leave(loop, c);
        gb_front_cut(c);
        atomic_fetch_add(&loop->server->displaced, 1);
        return true;
    }
    return false;
}

bool gb_quiet_give_way(struct gb_loop *loop, bool local) {
    uint64_t now_ns = gb_clock_ns();
    int asked;

    for (asked = 0; asked < 2; asked++) {
        if (first_of(loop, &loop->quiet[false][asked], now_ns) ||
            (local && first_of(loop, &loop->quiet[true][asked], now_ns)))
            return true;
    }
    return false;
}
