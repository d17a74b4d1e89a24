/* Failover: a pull whose source has failed continues at another node that has the session, as the directory says. Only
 * sealed bytes continue; otherwise the pull begins again. pull.c and source.c call this on the threads of a pull. */

#include <poll.h>
#include <stdlib.h>
#include <string.h>

#include "fleet/pull/source.h"

#define LEAVE_AFTER 1    /* failures in a row: a broken connection is first made again */
#define FAILURES_MORE 13 /* four seconds each, so that a lease runs out meanwhile */

bool gb_pull_wait(const struct gb_pull *pull, int fd) {
    return gb_fetch_poll(&pull->fetch, fd, POLLIN, -1) > 0;
}

/* --- places ------------------------------------------------------------------------------------------------------- */

static void place_free(struct gb_pull_place *place) {
    if (place->ticket.free_arg)
        place->ticket.free_arg(place->ticket.arg);
    free(place);
}

/* The first place's ticket is params.ticket, and freed with params. */
void gb_pull_places_free(struct gb_pull *pull) {
    struct gb_pull_place *place = atomic_load(&pull->place);
    struct gb_pull_place *former;

    for (; place != &pull->first; place = former) {
        former = place->former;
        place_free(place);
    }
}

unsigned gb_pull_failovers(const struct gb_pull *pull) {
    const struct gb_pull_place *place;
    unsigned n = 0;

    for (place = atomic_load(&pull->place); place->former; place = place->former)
        n += strcmp(place->origin, place->former->origin) != 0;
    return n;
}

bool gb_pull_is_meant(const struct gb_pull *pull, const struct gb_pull_place *place,
                      const struct gb_pull_source *source, struct gb_error *err) {
    bool as_given = !pull->params.failover.registered && strcmp(place->origin, pull->first.origin) == 0;

    if (as_given || source->registered || !pull->params.failover.find)
        return true;
    gb_error_set(err, GB_ERR_SOURCE_REFUSED, "%s has a local session \"%s\", which is not the one of the directory",
                 place->origin, pull->params.from.session.s);
    return false;
}

/* --- failing over ------------------------------------------------------------------------------------------------- */

/* Adds to the error why no other place was found. */
static void add_reason(const struct gb_error *reason, struct gb_error *err) {
    gb_error_append(err, err->code, "; ");
    gb_error_append(err, err->code, reason->detail);
}

/* Finds another place. NULL, with the reason added to err: no place. */
static struct gb_pull_place *find(struct gb_pull *pull, const char *lost, struct gb_pull_patience *patience,
                                  struct gb_error *err) {
    const struct gb_pull_failover *failover = &pull->params.failover;
    struct gb_pull_place *place = calloc(1, sizeof(*place));
    struct gb_error reason = GB_ERROR_INIT;
    struct gb_pull_replica replica = {.origin = ""};
    int r = 0;

    if (place)
        r = failover->find(failover->arg, pull, lost, pull->source.registered, &replica, &reason);
    else
        gb_error_set(&reason, GB_ERR_SATURATED, "no memory to look for another place");
    if (r <= 0) {
        patience->more = r == 0 ? FAILURES_MORE : 0;
        add_reason(&reason, err);
        free(place);
        return NULL;
    }
    strcpy(place->origin, replica.origin);
    place->ticket = replica.ticket;
    place->former = atomic_load(&pull->place);
    return place;
}

/* A copy of the place that answers with another entity tag. The lost place keeps the ticket, and lives as long. */
static struct gb_pull_place *same_again(const struct gb_pull *pull, const struct gb_pull_place *lost) {
    struct gb_pull_place *place = calloc(1, sizeof(*place));

    if (!place)
        return NULL;
    strcpy(place->origin, lost->origin);
    place->ticket = lost->ticket;
    place->ticket.free_arg = NULL;
    place->former = atomic_load(&pull->place);
    return place;
}

/* Makes it the pull's place, if its record can be read. */
static enum gb_pull_outcome go(struct gb_pull_conn *conn, struct gb_pull_place *place, struct gb_error *err) {
    struct gb_pull *pull = conn->pull;
    struct gb_error reason = GB_ERROR_INIT;
    struct gb_pull_source there = {.bytes = 0};
    enum gb_pull_outcome outcome = gb_pull_describe(conn, place, &there, &reason);
    bool same = gb_pull_same_bytes(&pull->source, &there, pull->params.digests.given != 0);

    gb_text_unref(there.labels);
    if (outcome == GB_PULL_OK && !gb_pull_is_meant(pull, place, &there, &reason))
        outcome = GB_PULL_FAILED;
    if (outcome != GB_PULL_OK) {
        gb_pull_conn_close(conn);
        place_free(place);
        add_reason(&reason, err);
        return outcome == GB_PULL_STOPPED ? GB_PULL_STOPPED : GB_PULL_BROKEN;
    }
    strcpy(place->tag, there.tag);
    atomic_store(&pull->place, place);
    if (same)
        return GB_PULL_OK;
    *err = GB_ERROR_INIT;
    gb_error_set(err, GB_ERR_SOURCE_CHANGED, "it cannot be told that %s has the bytes of the source %s", place->origin,
                 pull->params.from.origin);
    return GB_PULL_CHANGED;
}

static enum gb_pull_outcome leave(struct gb_pull_conn *conn, const struct gb_pull_place *lost, enum gb_pull_outcome how,
                                  struct gb_pull_patience *patience, struct gb_error *err) {
    struct gb_pull *pull = conn->pull;
    struct gb_pull_place *place = find(pull, how == GB_PULL_CHANGED ? "" : lost->origin, patience, err);

    if (!place && how == GB_PULL_CHANGED)
        place = same_again(pull, lost);
    if (!place)
        return gb_fetch_ends(&pull->fetch) ? GB_PULL_STOPPED : GB_PULL_BROKEN;
    return go(conn, place, err);
}

enum gb_pull_outcome gb_pull_fail_over(struct gb_pull_conn *conn, const struct gb_pull_place *lost,
                                       enum gb_pull_outcome how, struct gb_pull_patience *patience,
                                       struct gb_error *err) {
    struct gb_pull *pull = conn->pull;
    enum gb_pull_outcome outcome = GB_PULL_OK;

    if (atomic_load(&pull->place) != lost)
        return GB_PULL_OK;
    if (!gb_pull_may_fail_over(pull) || (how == GB_PULL_BROKEN && patience->failures < LEAVE_AFTER && !conn->silent))
        return how;
    if (atomic_exchange(&pull->failing_over, true)) {
        patience->more = FAILURES_MORE; /* the part that fails over reports the outcome */
        return GB_PULL_BROKEN;
    }
    if (atomic_load(&pull->place) == lost)
        outcome = leave(conn, lost, how, patience, err);
    atomic_store(&pull->failing_over, false);
    return outcome;
}

void gb_pull_begin_failover(struct gb_pull *pull, struct gb_pull_patience *patience, struct gb_error *err) {
    struct gb_pull_place *lost = atomic_load(&pull->place);
    struct gb_pull_place *place;

    if (!gb_pull_may_fail_over(pull) || (patience->failures < LEAVE_AFTER && !pull->conn.silent))
        return;
    place = find(pull, lost->origin, patience, err);
    if (place)
        atomic_store(&pull->place, place);
}
