/* The steps of one move: where the session is, what of it is brought while its owner serves on, the moment in which
 * nothing changes, and the decision. The keys of its requests are here before the decision, so that the node which has
 * the session knows them. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "core/runtime/call.h"
#include "move/internal.h"

#define ROUNDS_MAX 8            /* before the first freeze */
#define SMALL_BYTES (64u << 20) /* what may have changed before a freeze */
#define FREEZES_MAX 3
#define QUIET_PAUSE_MS 10
#define QUIET_MS 3000
#define AGAIN_MS 250

/* --- where it is -------------------------------------------------------------------------------------------------- */

/* 1: it is here already. */
static int locate(struct gb_move *move, struct gb_error *err) {
    struct gb_arrival *arrival = &move->arrival;
    struct gb_move_call *call = move->call;
    int r = gb_arrival_locate(arrival, err);

    if (r < 0)
        return -1;
    call->session = arrival->session;
    call->former = arrival->there.node;
    call->former_epoch = call->epoch = arrival->there.epoch;
    snprintf(arrival->suffix, sizeof(arrival->suffix), ".arriving-%" PRIu64, arrival->there.epoch + 1);
    return r;
}

/* --- at rest ------------------------------------------------------------------------------------------------------ */

/* Changes that had begun end. */
static int await_quiet(struct gb_move *move, struct gb_move_freeze *freeze, struct gb_error *err) {
    uint64_t end = gb_clock_ns() + QUIET_MS * GB_NS_PER_MS;

    while (!freeze->quiet && gb_clock_ns() < end) {
        if (!gb_arrival_pause(&move->arrival, QUIET_PAUSE_MS))
            return gb_arrival_stopped_error(&move->arrival, err);
        if (gb_move_look_frozen(&move->arrival, freeze, err) < 0)
            return -1;
    }
    if (freeze->quiet)
        return 0;
    return gb_error_set(err, GB_ERR_SESSION_MOVING,
                        "changes of the session \"%s\" did not end in %d ms; it stays where it is",
                        move->arrival.session.s, QUIET_MS);
}

/* From then on the move goes on until it is decided. */
static int begin_decision(struct gb_move *move, struct gb_error *err) {
    bool stopped;

    pthread_mutex_lock(&move->arrival.lock);
    stopped = move->arrival.stopped;
    move->arrival.decides = !stopped;
    pthread_mutex_unlock(&move->arrival.lock);
    return stopped ? gb_arrival_stopped_error(&move->arrival, err) : 0;
}

/* Whether the directory gives the session to this node. -1: it does not answer. */
static int is_given(struct gb_move *move, bool *ret_owner_alive, struct gb_error *err) {
    struct gb_fleet_find find;

    if (gb_arrival_find(&move->arrival, &find, err) < 0)
        return -1;
    *ret_owner_alive = find.owner.alive;
    move->call->epoch = find.session.epoch;
    move->arrival.there = find.session; /* with the holders that it has by now */
    return strcmp(find.session.claim, move->arrival.claim) == 0 ? 1 : 0;
}

/* The owner decides, and says so. If its answer is lost, the directory tells; if neither says anything, the session is
 * neither here nor there until one of them does. */
static int decide(struct gb_move *move, const struct gb_move_freeze *freeze, struct gb_error *err) {
    struct gb_error unknown = GB_ERROR_INIT;
    bool owner_alive = true;
    int given;
    int told;

    for (;;) {
        struct gb_error why = GB_ERROR_INIT;

        told = gb_move_give(&move->arrival, freeze, &why);
        given = is_given(move, &owner_alive, &unknown);
        if (given > 0)
            return 0;
        /* An owner that is not alive cannot give it any more. */
        if (given == 0 && (told < 0 || (told == 0 && !owner_alive)))
            return told < 0 ? gb_error_move(err, &why)
                            : gb_error_set(err, GB_ERR_OWNER_ABSENT, "the session's node went away in the midst");
        unknown = GB_ERROR_INIT;
        if (!gb_arrival_pause(&move->arrival, AGAIN_MS))
            return gb_arrival_stopped_error(&move->arrival, err);
    }
}

/* 0: the session is this node's; 1: it changed too fast, and goes on; -1. */
static int hand_over(struct gb_move *move, struct gb_error *err) {
    struct gb_error why = GB_ERROR_INIT;
    uint64_t begun = gb_clock_ns();
    struct gb_move_freeze freeze;
    int r;

    if (gb_move_freeze(&move->arrival, &freeze, err) < 0)
        return -1;
    r = await_quiet(move, &freeze, &why);
    if (r == 0)
        r = gb_arrival_stage_again(&move->arrival, &why);
    if (r == 0)
        r = gb_arrival_bring(&move->arrival, false, &why);
    if (r == 0)
        r = gb_arrival_bring_keys(&move->arrival, true, &why);
    if (r == 0)
        r = begin_decision(move, &why);
    if (r < 0) {
        gb_move_thaw(&move->arrival, &freeze);
        return gb_error_move(err, &why);
    }
    r = decide(move, &freeze, &why);
    move->call->frozen_ns = gb_clock_ns() - begun;
    pthread_mutex_lock(&move->arrival.lock);
    move->arrival.decides = r == 0 || move->arrival.stopped;
    pthread_mutex_unlock(&move->arrival.lock);
    if (r < 0 && why.code == GB_ERR_SESSION_MOVING)
        return 1; /* the freeze was over before all was here */
    return r < 0 ? gb_error_move(err, &why) : 0;
}

/* --- the whole ---------------------------------------------------------------------------------------------------- */

static int bring_most(struct gb_move *move, struct gb_error *err) {
    unsigned rounds = 0;

    do {
        if (gb_arrival_bring(&move->arrival, true, err) < 0)
            return -1;
    } while (move->arrival.changed_bytes > SMALL_BYTES && ++rounds < ROUNDS_MAX);
    return gb_arrival_bring_keys(&move->arrival, false, err);
}

static int bring_all(struct gb_move *move, struct gb_error *err) {
    unsigned freezes;
    int r = 1;

    if (gb_arrival_stage_again(&move->arrival, err) < 0)
        return -1;
    for (freezes = 0; r > 0 && freezes < FREEZES_MAX; freezes++) {
        if (bring_most(move, err) < 0)
            return -1;
        r = hand_over(move, err);
    }
    if (r <= 0)
        return r;
    return gb_error_set(err, GB_ERR_SESSION_MOVING,
                        "in %d ms without writers not all came that they had changed of the session \"%s\"; it stays "
                        "where it is",
                        GB_MOVE_FREEZE_MS, move->arrival.session.s);
}

static void count_skipped(struct gb_move *move) {
    struct gb_move_call *call = move->call;
    const struct gb_arrival_item *item;
    size_t at = 0;

    while ((item = gb_map_next(&move->arrival.items, &at))) {
        if (item->skipped == GB_OK)
            continue;
        if (call->told < GB_MOVE_SKIPPED_TOLD)
            call->tell[call->told++] = (struct gb_move_skip){item->name, item->skipped};
        call->skipped++;
    }
    call->rounds = move->arrival.round;
}

/* A daemon that stops while it is not decided keeps what has come: the directory says afterwards whose it is. */
static bool is_open(struct gb_move *move) {
    bool open;

    pthread_mutex_lock(&move->arrival.lock);
    open = move->arrival.decides;
    pthread_mutex_unlock(&move->arrival.lock);
    return open;
}

static int unveil(struct gb_move *move, struct gb_error *err) {
    struct gb_move_call *call = move->call;
    struct gb_session_view view = {.used_bytes = 0};

    if (gb_arrival_unveil(&move->arrival, call->epoch, &view, err) < 0)
        return -1;
    call->buffers = view.buffers;
    call->bytes = view.used_bytes;
    call->pulled_bytes = move->arrival.pulled_bytes;
    gb_session_rec_done(&view.rec);
    return 0;
}

int gb_move_run(struct gb_move *move, struct gb_error *err) {
    int r = locate(move, err);

    if (r != 0)
        return r < 0 ? -1 : 0;
    if (gb_arrival_stage(&move->arrival, err) < 0)
        return -1;
    r = bring_all(move, err);
    if (r == 0)
        r = unveil(move, err);
    if (r == 0) {
        count_skipped(move);
        gb_fleet_refresh(move->moves->config.fleet, &move->arrival.session);
        gb_move_tell_arrived(&move->arrival);
        return 0;
    }
    if (!is_open(move))
        gb_arrival_unstage(&move->arrival);
    return -1;
}
