/* The two threads of copies. "gb-replica" keeps copies for other nodes; "gb-holders" finds nodes that keep copies of
 * this node's sessions. The daemon opens and closes them; the core wakes them and asks for room. */
#include "fleet/replica/replica.h"

#include <stdlib.h>

#include "base/clock.h"
#include "base/thread.h"
#include "fleet/arrival/arrival.h"
#include "fleet/replica/copies.h"

#define GATHER_MS 20 /* buffers that are sealed within this time are handled together */

/* Waits until something has changed since *seen, at most ms. Returns false once the threads stop. */
static bool replicas_await(struct gb_replicas *r, unsigned *seen, unsigned ms) {
    struct timespec end = gb_after_ms(ms);
    bool running;
    int late = 0;

    pthread_mutex_lock(&r->lock);
    while (!r->stopping && r->wakes == *seen && late == 0)
        late = pthread_cond_timedwait(&r->woken, &r->lock, &end);
    *seen = r->wakes;
    running = !r->stopping;
    pthread_mutex_unlock(&r->lock);
    return running;
}

static void *replica_main(void *arg) {
    struct gb_replicas *r = arg;
    unsigned seen = 0;

    do
        gb_copies_update(r);
    while (replicas_await(r, &seen, gb_copies_pause_ms(r)));
    return NULL;
}

static void *holders_main(void *arg) {
    struct gb_replicas *r = arg;
    unsigned seen = 0;
    unsigned pause;

    do
        pause = gb_holders_reconcile(r);
    while (replicas_await(r, &seen, pause) && gb_arrival_pause(&r->waiter, GATHER_MS));
    return NULL;
}

static void wake(void *arg) {
    gb_replicas_wake(arg);
}

static bool make_room(void *arg, uint64_t bytes) {
    struct gb_replicas *r = arg;
    const struct gb_copy *copy;
    uint64_t held = 0;
    size_t at = 0;

    pthread_mutex_lock(&r->lock);
    while ((copy = gb_map_next(&r->copies, &at)))
        held += copy->published.bytes;
    if (held > 0 && bytes > r->needed_bytes)
        r->needed_bytes = bytes;
    if (held > 0) {
        r->wakes++;
        pthread_cond_broadcast(&r->woken);
    }
    pthread_mutex_unlock(&r->lock);
    return held > 0;
}

/* Both threads end soon after this. */
static void stop(struct gb_replicas *r) {
    struct gb_copy *copy;
    size_t at = 0;

    pthread_mutex_lock(&r->lock);
    r->stopping = true;
    gb_arrival_stop(&r->waiter, GB_ERR_DRAINING, true);
    gb_arrival_stop(&r->list_wait, GB_ERR_DRAINING, true);
    while ((copy = gb_map_next(&r->copies, &at)))
        gb_arrival_stop(&copy->arrival, GB_ERR_DRAINING, true);
    pthread_cond_broadcast(&r->woken);
    pthread_mutex_unlock(&r->lock);
}

static void replicas_free(struct gb_replicas *r) {
    gb_copies_free(r);
    gb_holders_free(r);
    gb_arrival_done(&r->waiter);
    gb_arrival_done(&r->list_wait);
    pthread_cond_destroy(&r->woken);
    pthread_mutex_destroy(&r->lock);
    free(r);
}

int gb_replicas_open(const struct gb_replicas_config *config, struct gb_replicas **ret, struct gb_error *err) {
    static const struct gb_name none = {""};
    struct gb_replicas *r = calloc(1, sizeof(*r));

    if (!r)
        return gb_error_set(err, GB_ERR_INTERNAL, "out of memory");
    r->config = *config;
    r->stat.bytes_max = config->bytes_max;
    pthread_mutex_init(&r->lock, NULL);
    gb_cond_init(&r->woken);
    gb_arrival_init(&r->waiter, &config->arrival, &none, config->who);
    gb_arrival_init(&r->list_wait, &config->arrival, &none, config->who);
    if (gb_thread_start(&r->replica_thread, "gb-replica", replica_main, r, err) < 0) {
        replicas_free(r);
        return -1;
    }
    if (gb_thread_start(&r->holders_thread, "gb-holders", holders_main, r, err) < 0) {
        stop(r);
        pthread_join(r->replica_thread, NULL);
        replicas_free(r);
        return -1;
    }
    gb_core_set_copied(config->arrival.core, wake, make_room, r);
    *ret = r;
    return 0;
}

void gb_replicas_close(struct gb_replicas *r) {
    if (!r)
        return;
    gb_core_set_copied(r->config.arrival.core, NULL, NULL, NULL);
    stop(r);
    pthread_join(r->replica_thread, NULL);
    pthread_join(r->holders_thread, NULL);
    replicas_free(r);
}

void gb_replicas_stat(struct gb_replicas *r, struct gb_replica_stat *ret) {
    const struct gb_copy *copy;
    size_t at = 0;

    pthread_mutex_lock(&r->lock);
    *ret = r->stat;
    while ((copy = gb_map_next(&r->copies, &at))) {
        ret->sessions++;
        ret->buffers += copy->published.buffers;
        ret->bytes += copy->published.bytes;
    }
    pthread_mutex_unlock(&r->lock);
}
