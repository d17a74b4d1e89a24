#include <stdlib.h>
#include <string.h>

#include "base/thread.h"
#include "core/runtime/call.h"
#include "move/internal.h"

/* --- waking ------------------------------------------------------------------------------------------------------- */

void gb_move_wake(void *arg) {
    struct gb_move_wait *wait = arg;
    struct gb_move *move = wait->move;

    pthread_mutex_lock(&move->lock);
    wait->done = true;
    pthread_cond_broadcast(&move->woken);
    pthread_mutex_unlock(&move->lock);
}

bool gb_move_is_stopped(struct gb_move *move) {
    bool stopped;

    pthread_mutex_lock(&move->lock);
    stopped = move->stopped;
    pthread_mutex_unlock(&move->lock);
    return stopped;
}

int gb_move_stopped_error(struct gb_move *move, struct gb_error *err) {
    enum gb_code why;

    pthread_mutex_lock(&move->lock);
    why = move->why;
    pthread_mutex_unlock(&move->lock);
    if (why == GB_ERR_DRAINING)
        return gb_error_set(err, GB_ERR_DRAINING, "the daemon is stopping; the session stays where it is");
    return gb_cancelled(err);
}

bool gb_move_pause(struct gb_move *move, unsigned ms) {
    struct timespec end = gb_after_ms(ms);
    bool stopped;
    int r = 0;

    pthread_mutex_lock(&move->lock);
    while (!move->stopped && r == 0)
        r = pthread_cond_timedwait(&move->woken, &move->lock, &end);
    stopped = move->stopped;
    pthread_mutex_unlock(&move->lock);
    return !stopped;
}

/* --- calls of the core -------------------------------------------------------------------------------------------- */

void *gb_move_call_new(struct gb_move *move, size_t size, struct gb_move_wait *wait, struct gb_error *err) {
    void *call;

    *wait = (struct gb_move_wait){.move = move};
    call = gb_call_new(size, gb_move_wake, wait);
    if (!call)
        gb_error_set(err, GB_ERR_SATURATED, "no memory for the move; try again later");
    return call;
}

/* What the core does ends by itself; what waits for memory or for bytes is cancelled. */
int gb_move_call_wait(struct gb_move_wait *wait, struct gb_call *call, struct gb_error *err) {
    struct gb_move *move = wait->move;
    bool cancelled = false;

    pthread_mutex_lock(&move->lock);
    while (!wait->done) {
        if (move->stopped && !move->decides && !cancelled) {
            cancelled = true;
            pthread_mutex_unlock(&move->lock);
            (void)gb_call_cancel(call, true);
            pthread_mutex_lock(&move->lock);
            continue;
        }
        pthread_cond_wait(&move->woken, &move->lock);
    }
    pthread_mutex_unlock(&move->lock);
    return call->error.code == GB_OK ? 0 : gb_error_move(err, &call->error);
}

static bool any_done(const struct gb_move_wait *waits, size_t count) {
    size_t i;

    for (i = 0; i < count; i++)
        if (waits[i].done)
            return true;
    return false;
}

void gb_move_wait_any(struct gb_move *move, const struct gb_move_wait *waits, size_t count) {
    pthread_mutex_lock(&move->lock);
    while (!move->stopped && !any_done(waits, count))
        pthread_cond_wait(&move->woken, &move->lock);
    pthread_mutex_unlock(&move->lock);
}

/* --- asks of the fleet -------------------------------------------------------------------------------------------- */

/* Each ends within seconds. A daemon that stops does not wait for them. */
static int ask_wait(struct gb_move *move, struct gb_move_wait *wait, struct gb_fleet_ask *ask, struct gb_error *err) {
    bool done;

    pthread_mutex_lock(&move->lock);
    while (!wait->done && !move->stopped)
        pthread_cond_wait(&move->woken, &move->lock);
    done = wait->done;
    pthread_mutex_unlock(&move->lock);
    if (!done)
        gb_fleet_leave(move->fleet, ask); /* it may be done by now */
    if (!done)
        return gb_move_stopped_error(move, err);
    return ask->error.code == GB_OK ? 0 : gb_error_move(err, &ask->error);
}

struct finding {
    struct gb_fleet_find find;
    struct gb_move_wait wait;
};

static void found(struct gb_fleet_ask *ask) {
    gb_move_wake(&gb_container_of(ask, struct finding, find.ask)->wait);
}

int gb_move_find(struct gb_move *move, struct gb_fleet_find *ret, struct gb_error *err) {
    struct finding f = {.find = {.ask = {.done = found}}, .wait = {.move = move}};
    int r = 0;

    if (!gb_fleet_find(move->fleet, &move->session, true, &f.find))
        r = ask_wait(move, &f.wait, &f.find.ask, err);
    else if (f.find.ask.error.code != GB_OK)
        r = gb_error_move(err, &f.find.ask.error);
    *ret = f.find;
    return r;
}

struct requesting {
    struct gb_fleet_call call;
    struct gb_move_wait wait;
};

static void requested(struct gb_fleet_ask *ask) {
    gb_move_wake(&gb_container_of(ask, struct requesting, call.ask)->wait);
}

int gb_move_request(struct gb_move *move, struct gb_fleet_call *ret, struct gb_error *err) {
    struct requesting q = {.call = *ret, .wait = {.move = move}};
    int r;

    q.call.ask = (struct gb_fleet_ask){.done = requested};
    gb_fleet_call(move->fleet, &q.call);
    r = ask_wait(move, &q.wait, &q.call.ask, err);
    *ret = q.call;
    return r;
}
