/* Which loop has which connection: sockets on their way to a loop, handshakes that are not done, and connections
 * without a request. If all places are taken, one of these gives way to a newcomer. Other threads give sockets; the
 * lists are the loop's own. */
#include "http/server/loop.h"

#include <limits.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/thread.h"
#include "http/message/response.h"
#include "http/server/tls_front.h"

/* --- handoff queue ------------------------------------------------------------------------------------------------ */

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

/* --- handshakes --------------------------------------------------------------------------------------------------- */

/* A handshake that began more recently is not ended in favour of a newcomer. */
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

/* --- quiet -------------------------------------------------------------------------------------------------------- */

/* Each loop lists its own connections in the order in which they fell quiet; those that have had no request apart from
 * those that have. Other loops read only the time since when the first of each list has been quiet. */

/* The header of a client that has just connected is on its way, and a client that polls is not idle. */
#define QUIET_NS GB_NS_PER_S

/* Connections to check before the newcomer is refused. */
#define TRIES 16

static struct gb_quiet *list_of(struct gb_loop *loop, const struct gb_conn *c) {
    return &loop->quiet[c->local][c->asked];
}

static void quiet_publish(struct gb_quiet *quiet) {
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
        quiet_publish(quiet);
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
        quiet_publish(quiet);
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

/* [the loop's thread] Ends that connection. False: no connection gives way. */
static bool quiet_give_way(struct gb_loop *loop, bool local) {
    uint64_t now_ns = gb_clock_ns();
    int asked;

    for (asked = 0; asked < 2; asked++) {
        if (first_of(loop, &loop->quiet[false][asked], now_ns) ||
            (local && first_of(loop, &loop->quiet[true][asked], now_ns)))
            return true;
    }
    return false;
}

/* --- refuse ------------------------------------------------------------------------------------------------------- */

/* Says in numbers which limit was reached. */
static void explain(const struct gb_http_server *server, enum gb_refusal why, bool local, char *out, size_t size) {
    const struct gb_conn_slots *places = &server->places;
    unsigned long long taken = atomic_load(&places->taken);
    unsigned long long remote = atomic_load(&places->remote);

    if (why == GB_REFUSAL_SOURCE)
        snprintf(out, size,
                 "%u connections of this address are open, as many as one may have (--max-connections-per-address)",
                 places->source_max);
    else if (why == GB_REFUSAL_MEMORY)
        snprintf(out, size, "no memory for another connection");
    else if (why == GB_REFUSAL_PLAIN)
        snprintf(out, size, "this address is for TLS: ask it with https://");
    else if (why == GB_REFUSAL_FULL && !local && taken < places->max)
        snprintf(out, size, "%llu of %llu connections over TCP are in use; %llu are kept for the UNIX socket", remote,
                 (unsigned long long)places->remote_max, (unsigned long long)(places->max - places->remote_max));
    else
        snprintf(out, size, "%llu of %llu connections are in use%s", taken, (unsigned long long)places->max,
                 why == GB_REFUSAL_DRAINING ? "; no more are taken" : "");
}

static enum gb_code code_of(enum gb_refusal why) {
    switch (why) {
    case GB_REFUSAL_DRAINING:
        return GB_ERR_DRAINING;
    case GB_REFUSAL_PLAIN:
        return GB_ERR_MALFORMED_REQUEST;
    case GB_REFUSAL_SOURCE:
        return GB_ERR_TOO_MANY_REQUESTS;
    default:
        return GB_ERR_SATURATED;
    }
}

void gb_refuse(struct gb_loop *loop, const struct gb_handoff *handoff, enum gb_refusal why) {
    struct gb_http_server *server = loop->server;
    struct gb_error error = GB_ERROR_INIT;
    char detail[160];
    char text[640];
    struct gb_json_writer out = gb_json_fixed(text, sizeof(text));
    char head[640];
    char id[24];
    bool is_plain = why == GB_REFUSAL_PLAIN;
    int fd = handoff->fd;
    int status;
    int n;

    explain(server, why, handoff->local, detail, sizeof(detail));
    gb_error_set(&error, code_of(why), "%s", detail);
    snprintf(id, sizeof(id), "%016llx", (unsigned long long)gb_exchange_loop_id(&loop->exchanges));
    gb_problem_open(&out, &error, NULL, "", id);
    gb_json_close(&out, '}');
    gb_json_end(&out);
    status = gb_code_status(error.code);
    n = snprintf(head, sizeof(head),
                 "HTTP/1.1 %d %s\r\nContent-Type: application/problem+json\r\n" GB_EVERY_REPLY_LINES
                 "Cache-Control: no-store\r\n" GB_REPLY_ID ": %s\r\n%sConnection: close\r\nContent-Length: %zu\r\n\r\n",
                 status, gb_http_reason(status), id, is_plain ? "" : "Retry-After: 1\r\n", out.used);
    atomic_fetch_add(&server->refused, 1);
    if (why == GB_REFUSAL_SOURCE)
        atomic_fetch_add(&server->refused_source, 1);
    /* A fresh socket has room for this; the rest is not worth waiting for. Nor is a handshake. */
    if ((!handoff->secure || is_plain) && send(fd, head, (size_t)n, MSG_NOSIGNAL | MSG_DONTWAIT | MSG_MORE) == n)
        (void)!send(fd, text, out.used, MSG_NOSIGNAL | MSG_DONTWAIT);
    shutdown(fd, SHUT_WR);
    close(fd);
}

bool gb_refuse_or_squeeze(struct gb_loop *loop, const struct gb_handoff *handoff) {
    struct gb_http_server *server = loop->server;

    atomic_fetch_sub(&server->squeezed, 1);
    if (gb_fronts_give_way(loop) || quiet_give_way(loop, handoff->local)) {
        atomic_fetch_add(&server->accepted, 1);
        return true;
    }
    gb_peer_end(handoff->peer);
    gb_conn_slot_end(&server->places, handoff->source);
    gb_refuse(loop, handoff, GB_REFUSAL_FULL);
    return false;
}
