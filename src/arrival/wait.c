#include <stdlib.h>
#include <string.h>

#include "arrival/arrival.h"
#include "base/thread.h"
#include "core/runtime/call.h"

/* --- waking ------------------------------------------------------------------------------------------------------- */

void gb_arrival_wake(void *arg) {
    struct gb_arrival_wait *wait = arg;
    struct gb_arrival *arrival = wait->arrival;

    pthread_mutex_lock(&arrival->lock);
    wait->done = true;
    pthread_cond_broadcast(&arrival->woken);
    pthread_mutex_unlock(&arrival->lock);
}

bool gb_arrival_is_stopped(struct gb_arrival *arrival) {
    bool stopped;

    pthread_mutex_lock(&arrival->lock);
    stopped = arrival->stopped;
    pthread_mutex_unlock(&arrival->lock);
    return stopped;
}

int gb_arrival_stopped_error(struct gb_arrival *arrival, struct gb_error *err) {
    enum gb_code why;

    pthread_mutex_lock(&arrival->lock);
    why = arrival->why;
    pthread_mutex_unlock(&arrival->lock);
    if (why == GB_ERR_DRAINING)
        return gb_error_set(err, GB_ERR_DRAINING, "the daemon is stopping; the session stays where it is");
    return gb_cancelled(err);
}

bool gb_arrival_pause(struct gb_arrival *arrival, unsigned ms) {
    struct timespec end = gb_after_ms(ms);
    bool stopped;
    int r = 0;

    pthread_mutex_lock(&arrival->lock);
    while (!arrival->stopped && r == 0)
        r = pthread_cond_timedwait(&arrival->woken, &arrival->lock, &end);
    stopped = arrival->stopped;
    pthread_mutex_unlock(&arrival->lock);
    return !stopped;
}

/* --- calls of the core -------------------------------------------------------------------------------------------- */

void *gb_arrival_call_new(struct gb_arrival *arrival, size_t size, struct gb_arrival_wait *wait, struct gb_error *err) {
    void *call;

    *wait = (struct gb_arrival_wait){.arrival = arrival};
    call = gb_call_new(size, gb_arrival_wake, wait);
    if (!call)
        gb_error_set(err, GB_ERR_SATURATED, "no memory to bring the session; try again later");
    return call;
}

/* What the core does ends by itself; what waits for memory or for bytes is cancelled. */
int gb_arrival_call_wait(struct gb_arrival_wait *wait, struct gb_call *call, struct gb_error *err) {
    struct gb_arrival *arrival = wait->arrival;
    bool cancelled = false;

    pthread_mutex_lock(&arrival->lock);
    while (!wait->done) {
        if (arrival->stopped && !arrival->decides && !cancelled) {
            cancelled = true;
            pthread_mutex_unlock(&arrival->lock);
            (void)gb_call_cancel(call, true);
            pthread_mutex_lock(&arrival->lock);
            continue;
        }
        pthread_cond_wait(&arrival->woken, &arrival->lock);
    }
    pthread_mutex_unlock(&arrival->lock);
    return call->error.code == GB_OK ? 0 : gb_error_move(err, &call->error);
}

static bool any_done(const struct gb_arrival_wait *waits, size_t count) {
    size_t i;

    for (i = 0; i < count; i++)
        if (waits[i].done)
            return true;
    return false;
}

void gb_arrival_wait_any(struct gb_arrival *arrival, const struct gb_arrival_wait *waits, size_t count) {
    pthread_mutex_lock(&arrival->lock);
    while (!arrival->stopped && !any_done(waits, count))
        pthread_cond_wait(&arrival->woken, &arrival->lock);
    pthread_mutex_unlock(&arrival->lock);
}

/* --- asks of the fleet -------------------------------------------------------------------------------------------- */

/* Each ends within seconds. A daemon that stops does not wait for them. */
int gb_arrival_ask_wait(struct gb_arrival_wait *wait, struct gb_fleet_ask *ask, struct gb_error *err) {
    struct gb_arrival *arrival = wait->arrival;
    bool done;

    pthread_mutex_lock(&arrival->lock);
    while (!wait->done && !arrival->stopped)
        pthread_cond_wait(&arrival->woken, &arrival->lock);
    done = wait->done;
    pthread_mutex_unlock(&arrival->lock);
    if (!done)
        gb_fleet_leave(arrival->config.fleet, ask); /* it may be done by now */
    if (!done)
        return gb_arrival_stopped_error(arrival, err);
    return ask->error.code == GB_OK ? 0 : gb_error_move(err, &ask->error);
}

struct finding {
    struct gb_fleet_find find;
    struct gb_arrival_wait wait;
};

static void found(struct gb_fleet_ask *ask) {
    gb_arrival_wake(&gb_container_of(ask, struct finding, find.ask)->wait);
}

int gb_arrival_find(struct gb_arrival *arrival, struct gb_fleet_find *ret, struct gb_error *err) {
    struct finding f = {.find = {.ask = {.done = found}}, .wait = {.arrival = arrival}};
    int r = 0;

    if (!gb_fleet_find(arrival->config.fleet, &arrival->session, true, &f.find))
        r = gb_arrival_ask_wait(&f.wait, &f.find.ask, err);
    else if (f.find.ask.error.code != GB_OK)
        r = gb_error_move(err, &f.find.ask.error);
    *ret = f.find;
    return r;
}

struct requesting {
    struct gb_fleet_call call;
    struct gb_arrival_wait wait;
};

static void requested(struct gb_fleet_ask *ask) {
    gb_arrival_wake(&gb_container_of(ask, struct requesting, call.ask)->wait);
}

int gb_arrival_request(struct gb_arrival *arrival, struct gb_fleet_call *ret, struct gb_error *err) {
    struct requesting q = {.call = *ret, .wait = {.arrival = arrival}};
    int r;

    q.call.ask = (struct gb_fleet_ask){.done = requested};
    gb_fleet_call(arrival->config.fleet, &q.call);
    r = gb_arrival_ask_wait(&q.wait, &q.call.ask, err);
    *ret = q.call;
    return r;
}
