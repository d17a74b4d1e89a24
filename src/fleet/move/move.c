/* Moves. A move finds the owner, pulls buffers while the owner serves, freezes the owner's writers, pulls the rest, and
 * asks the owner to transfer the session. Until the directory confirms the transfer, the session stays the owner's.
 * Each move has a thread, which is joined when the next move begins. The API starts moves. */
#include "fleet/move/move.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/thread.h"
#include "core/runtime/call.h"
#include "fleet/arrival/arrival.h"
#include "fleet/arrival/owner.h"

#define GB_MOVE_FREEZE_MS 5000

struct gb_move {
    struct gb_move *next; /* in the list that it is in */
    struct gb_moves *moves;
    atomic_uint refs;
    pthread_t thread;
    struct gb_move_call *call;
    struct gb_arrival arrival;
};

struct move_freeze {
    uint64_t number;
    bool quiet; /* all changes that had begun have ended */
};

struct gb_moves {
    struct gb_arrival_config config;
    pthread_mutex_t lock;
    pthread_cond_t idle;
    bool closing;
    struct gb_move *runs;
    struct gb_move *ended; /* their threads are to be joined */
    unsigned running;
};

/* --- requests to the owner ---------------------------------------------------------------------------------------- */

static json_t *ask_owner(struct gb_arrival *arrival, json_t *body, bool *ret_answered, struct gb_error *err) {
    char path[64 + GB_NAME_MAX];

    snprintf(path, sizeof(path), "/v1/fleet/sessions/%s/handover", arrival->session.s);
    return gb_arrival_post(arrival, path, body, ret_answered, err);
}

static int read_freeze(const struct gb_arrival *arrival, json_t *root, struct move_freeze *ret, struct gb_error *err) {
    const json_t *number = json_object_get(root, "freeze");

    if (!root)
        return -1;
    if (json_is_integer(number))
        ret->number = (uint64_t)json_integer_value(number);
    ret->quiet = json_is_true(json_object_get(root, "quiet"));
    json_decref(root);
    if (ret->number > 0)
        return 0;
    return gb_error_set(err, GB_ERR_SOURCE_REFUSED, "the answer of the node \"%s\" cannot be read",
                        arrival->owner.name.s);
}

/* From now on the owner's writers wait, at most GB_MOVE_FREEZE_MS. */
static int move_freeze(struct gb_arrival *arrival, struct move_freeze *ret, struct gb_error *err) {
    json_t *body = json_pack("{s:s, s:I}", "step", "freeze", "epoch", (json_int_t)arrival->there.epoch);
    bool answered;

    *ret = (struct move_freeze){0};
    return read_freeze(arrival, ask_owner(arrival, body, &answered, err), ret, err);
}

static json_t *of_freeze(const char *step, const struct move_freeze *freeze) {
    return json_pack("{s:s, s:I}", "step", step, "freeze", (json_int_t)freeze->number);
}

static int move_poll_frozen(struct gb_arrival *arrival, struct move_freeze *freeze, struct gb_error *err) {
    bool answered;

    return read_freeze(arrival, ask_owner(arrival, of_freeze("look", freeze), &answered, err), freeze, err);
}

static void move_thaw(struct gb_arrival *arrival, const struct move_freeze *freeze) {
    bool answered;

    json_decref(ask_owner(arrival, of_freeze("thaw", freeze), &answered, NULL));
}

/* Any other answer is from a node that is busy, stops or waits for the directory, or from a proxy. */
static bool decides(enum gb_code code) {
    switch (code) {
    case GB_ERR_OWNER_UNKNOWN:
    case GB_ERR_SESSION_MOVING:
    case GB_ERR_SUPERSEDED:
    case GB_ERR_NODE_UNREACHABLE:
    case GB_ERR_DIRECTORY_UNAVAILABLE:
    case GB_ERR_MAPPED:
    case GB_ERR_ADOPTED:
    case GB_ERR_BUFFER_BUSY:
    case GB_ERR_INVALID_ARGUMENT:
        return true;
    default:
        return false;
    }
}

/* Asks the owner to transfer the session. 1: it did; 0: not decided yet; -1: it did not, and will not. */
static int move_give(struct gb_arrival *arrival, const struct move_freeze *freeze, struct gb_error *err) {
    json_t *body = json_pack("{s:s, s:I, s:s, s:s}", "step", "give", "freeze", (json_int_t)freeze->number, "to",
                             arrival->config.node.s, "claim", arrival->claim);
    struct gb_error why = GB_ERROR_INIT;
    bool answered;
    json_t *root = ask_owner(arrival, body, &answered, &why);

    json_decref(root);
    if (root)
        return 1;
    return answered && decides(why.code) ? gb_error_move(err, &why) : 0;
}

/* The session has arrived: the owner may free its bytes. */
static void move_report_arrived(struct gb_arrival *arrival) {
    json_t *body = json_pack("{s:s, s:s}", "step", "arrived", "claim", arrival->claim);
    bool answered;

    json_decref(ask_owner(arrival, body, &answered, NULL));
}

/* --- the steps of a move ------------------------------------------------------------------------------------------ */

/* The idempotency keys of the session's requests come before the decision, so that the owner always knows them. */

#define ROUNDS_MAX 8            /* before the first freeze */
#define SMALL_BYTES (64u << 20) /* what may have changed before a freeze */
#define FREEZES_MAX 3
#define QUIET_PAUSE_MS 10
#define QUIET_MS 3000
#define AGAIN_MS 250

/* Finds the owner. 1: the session is here already. */
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

/* --- the freeze and the decision ---------------------------------------------------------------------------------- */

/* Waits until the changes that had begun have ended. */
static int await_quiet(struct gb_move *move, struct move_freeze *freeze, struct gb_error *err) {
    uint64_t end = gb_clock_ns() + QUIET_MS * GB_NS_PER_MS;

    while (!freeze->quiet && gb_clock_ns() < end) {
        if (!gb_arrival_pause(&move->arrival, QUIET_PAUSE_MS))
            return gb_arrival_stopped_error(&move->arrival, err);
        if (move_poll_frozen(&move->arrival, freeze, err) < 0)
            return -1;
    }
    if (freeze->quiet)
        return 0;
    return gb_error_set(err, GB_ERR_SESSION_MOVING,
                        "changes of the session \"%s\" did not end in %d ms; it stays where it is",
                        move->arrival.session.s, QUIET_MS);
}

/* From here on the move cannot be cancelled. */
static int begin_decision(struct gb_move *move, struct gb_error *err) {
    bool stopped;

    pthread_mutex_lock(&move->arrival.lock);
    stopped = move->arrival.stopped;
    move->arrival.decides = !stopped;
    pthread_mutex_unlock(&move->arrival.lock);
    return stopped ? gb_arrival_stopped_error(&move->arrival, err) : 0;
}

/* Whether the directory names this node as the owner. -1: it does not answer. */
static int is_given(struct gb_move *move, bool *ret_owner_alive, struct gb_error *err) {
    struct gb_fleet_find find;

    if (gb_arrival_find(&move->arrival, &find, err) < 0)
        return -1;
    *ret_owner_alive = find.owner.alive;
    move->call->epoch = find.session.epoch;
    move->arrival.there = find.session; /* with its present holders */
    return strcmp(find.session.claim, move->arrival.claim) == 0 ? 1 : 0;
}

/* The owner decides and answers. If its answer is lost, the directory shows the decision. If neither answers, the owner
 * is unknown until one of them does. */
static int decide(struct gb_move *move, const struct move_freeze *freeze, struct gb_error *err) {
    struct gb_error unknown = GB_ERROR_INIT;
    bool owner_alive = true;
    int given;
    int answer;

    for (;;) {
        struct gb_error why = GB_ERROR_INIT;

        answer = move_give(&move->arrival, freeze, &why);
        given = is_given(move, &owner_alive, &unknown);
        if (given > 0)
            return 0;
        /* An owner that is not alive can no longer transfer it. */
        if (given == 0 && (answer < 0 || (answer == 0 && !owner_alive)))
            return answer < 0 ? gb_error_move(err, &why)
                              : gb_error_set(err, GB_ERR_OWNER_ABSENT, "the session's node went away in the midst");
        unknown = GB_ERROR_INIT;
        if (!gb_arrival_pause(&move->arrival, AGAIN_MS))
            return gb_arrival_stopped_error(&move->arrival, err);
    }
}

/* 0: the session is this node's; 1: it changed too fast, another round follows; -1. */
static int hand_over(struct gb_move *move, struct gb_error *err) {
    struct gb_error why = GB_ERROR_INIT;
    uint64_t begun = gb_clock_ns();
    struct move_freeze freeze;
    int r;

    if (move_freeze(&move->arrival, &freeze, err) < 0)
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
        move_thaw(&move->arrival, &freeze);
        return gb_error_move(err, &why);
    }
    r = decide(move, &freeze, &why);
    move->call->frozen_ns = gb_clock_ns() - begun;
    pthread_mutex_lock(&move->arrival.lock);
    move->arrival.decides = r == 0 || move->arrival.stopped;
    pthread_mutex_unlock(&move->arrival.lock);
    if (r < 0 && why.code == GB_ERR_SESSION_MOVING)
        return 1; /* the freeze ended before everything was here */
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
        if (call->listed < GB_MOVE_SKIPPED_LISTED)
            call->list[call->listed++] = (struct gb_move_skip){item->name, item->skipped};
        call->skipped++;
    }
    call->rounds = move->arrival.round;
}

/* Whether the move is undecided because the daemon stops. What has come is kept: the directory names the owner
 * later. */
static bool is_open(struct gb_move *move) {
    bool open;

    pthread_mutex_lock(&move->arrival.lock);
    open = move->arrival.decides;
    pthread_mutex_unlock(&move->arrival.lock);
    return open;
}

static int commit(struct gb_move *move, struct gb_error *err) {
    struct gb_move_call *call = move->call;
    struct gb_session_view view = {.used_bytes = 0};

    if (gb_arrival_commit(&move->arrival, call->epoch, &view, err) < 0)
        return -1;
    call->buffers = view.buffers;
    call->bytes = view.used_bytes;
    call->pulled_bytes = move->arrival.pulled_bytes;
    gb_session_rec_done(&view.rec);
    return 0;
}

/* Runs all steps of a move. Returns 0 or -1. [the move's thread] */
static int move_run(struct gb_move *move, struct gb_error *err) {
    int r = locate(move, err);

    if (r != 0)
        return r < 0 ? -1 : 0;
    if (gb_arrival_stage(&move->arrival, err) < 0)
        return -1;
    r = bring_all(move, err);
    if (r == 0)
        r = commit(move, err);
    if (r == 0) {
        count_skipped(move);
        gb_fleet_refresh(move->moves->config.fleet, &move->arrival.session);
        move_report_arrived(&move->arrival);
        return 0;
    }
    if (!is_open(move))
        gb_arrival_unstage(&move->arrival);
    return -1;
}

/* --- one move ----------------------------------------------------------------------------------------------------- */

static void move_unref(struct gb_move *move) {
    if (atomic_fetch_sub(&move->refs, 1) != 1)
        return;
    gb_arrival_done(&move->arrival);
    free(move);
}

static struct gb_move *move_new(struct gb_moves *moves, const struct gb_name *session, const char *who,
                                struct gb_move_call *call) {
    struct gb_move *move = calloc(1, sizeof(*move));

    if (!move)
        return NULL;
    atomic_init(&move->refs, 1);
    move->moves = moves;
    move->call = call;
    gb_arrival_init(&move->arrival, &moves->config, session, who);
    return move;
}

static bool withdraw(struct gb_move **list, struct gb_move *move) {
    for (; *list; list = &(*list)->next)
        if (*list == move) {
            *list = move->next;
            return true;
        }
    return false;
}

/* --- cancelling --------------------------------------------------------------------------------------------------- */

static bool hold(void *arg) {
    atomic_fetch_add(&((struct gb_move *)arg)->refs, 1);
    return true;
}

/* act false asks whether the move waits for others, which no move does. */
static bool cancel(void *arg, bool act) {
    struct gb_move *move = arg;
    bool r = act && gb_arrival_stop(&move->arrival, GB_ERR_CANCELLED, true);

    move_unref(move);
    return r;
}

/* --- the threads -------------------------------------------------------------------------------------------------- */

static void *move_main(void *arg) {
    struct gb_error err = GB_ERROR_INIT;
    struct gb_move *move = arg;
    struct gb_moves *moves = move->moves;
    int r = move_run(move, &err);

    (void)gb_call_withdraw(&move->call->base, NULL);
    if (r < 0 && err.code == GB_OK)
        gb_error_set(&err, GB_ERR_INTERNAL, "the move has ended without a reason");
    gb_call_finish(&move->call->base, r < 0 ? &err : NULL);
    pthread_mutex_lock(&moves->lock);
    withdraw(&moves->runs, move);
    move->next = moves->ended;
    moves->ended = move;
    moves->running--;
    pthread_cond_broadcast(&moves->idle);
    pthread_mutex_unlock(&moves->lock);
    return NULL;
}

static void join_ended(struct gb_moves *moves) {
    struct gb_move *ended;
    struct gb_move *next;

    pthread_mutex_lock(&moves->lock);
    ended = moves->ended;
    moves->ended = NULL;
    pthread_mutex_unlock(&moves->lock);
    for (; ended; ended = next) {
        next = ended->next;
        pthread_join(ended->thread, NULL);
        move_unref(ended);
    }
}

static int admit_locked(struct gb_moves *moves, struct gb_move *move, struct gb_error *err) {
    const struct gb_move *other;

    if (moves->closing)
        return gb_error_set(err, GB_ERR_DRAINING, "the daemon is stopping");
    for (other = moves->runs; other; other = other->next)
        if (gb_name_equal(&other->arrival.session, &move->arrival.session))
            return gb_error_set(err, GB_ERR_SESSION_MOVING, "the session \"%s\" is being brought here already",
                                move->arrival.session.s);
    if (moves->running >= GB_MOVES_MAX)
        return gb_error_set(err, GB_ERR_SATURATED, "%d sessions are being brought here already; try again later",
                            GB_MOVES_MAX);
    if (gb_thread_start(&move->thread, "gb-move", move_main, move, NULL) < 0)
        return gb_error_set(err, GB_ERR_SATURATED, "the system gives no thread for the move; try again later");
    move->next = moves->runs;
    moves->runs = move;
    moves->running++;
    return 0;
}

void gb_move_start(struct gb_moves *moves, const struct gb_name *session, const char *who, struct gb_move_call *call) {
    struct gb_error err = GB_ERROR_INIT;
    struct gb_move *move = move_new(moves, session, who, call);
    int r = -1;

    join_ended(moves);
    if (move) {
        gb_call_offer(&call->base, hold, cancel, move);
        pthread_mutex_lock(&moves->lock);
        r = admit_locked(moves, move, &err);
        pthread_mutex_unlock(&moves->lock);
    } else {
        gb_error_set(&err, GB_ERR_SATURATED, "no memory for the move; try again later");
    }
    if (r == 0)
        return;
    if (move) {
        (void)gb_call_withdraw(&call->base, NULL);
        move_unref(move);
    }
    gb_call_finish(&call->base, &err);
}

bool gb_moves_have(struct gb_moves *moves, const struct gb_name *session) {
    const struct gb_move *move = NULL;

    if (!moves)
        return false;
    pthread_mutex_lock(&moves->lock);
    for (move = moves->runs; move && !gb_name_equal(&move->arrival.session, session); move = move->next)
        ;
    pthread_mutex_unlock(&moves->lock);
    return move != NULL;
}

/* --- opening and closing ------------------------------------------------------------------------------------------ */

int gb_moves_open(const struct gb_arrival_config *config, struct gb_moves **ret, struct gb_error *err) {
    struct gb_moves *moves = calloc(1, sizeof(*moves));

    if (!moves)
        return gb_error_set(err, GB_ERR_INTERNAL, "out of memory");
    moves->config = *config;
    pthread_mutex_init(&moves->lock, NULL);
    gb_cond_init(&moves->idle);
    *ret = moves;
    return 0;
}

void gb_moves_close(struct gb_moves *moves) {
    struct gb_move *move;

    if (!moves)
        return;
    pthread_mutex_lock(&moves->lock);
    moves->closing = true;
    for (move = moves->runs; move; move = move->next)
        (void)gb_arrival_stop(&move->arrival, GB_ERR_DRAINING, true);
    while (moves->running > 0)
        pthread_cond_wait(&moves->idle, &moves->lock);
    pthread_mutex_unlock(&moves->lock);
    join_ended(moves);
    pthread_cond_destroy(&moves->idle);
    pthread_mutex_destroy(&moves->lock);
    free(moves);
}
