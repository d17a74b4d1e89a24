/* Moves that run and have ended. Each has a thread, which is joined when the next one begins. */
#include <stdlib.h>

#include "base/thread.h"
#include "core/runtime/call.h"
#include "move/internal.h"

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

/* Without act: whether it waits for others, which no move does. */
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
    int r = gb_move_run(move, &err);

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

/* --- all moves ---------------------------------------------------------------------------------------------------- */

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
