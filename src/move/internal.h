/* A move, for the files that implement it: moves.c has the list and the threads, move.c the steps of one move,
 * handover.c what is asked of the owner at the end. */
#ifndef GB_MOVE_INTERNAL_H
#define GB_MOVE_INTERNAL_H

#include "arrival/arrival.h"
#include "move/move.h"

#define GB_MOVE_FREEZE_MS 5000

struct gb_move {
    struct gb_move *next; /* in the list that it is in */
    struct gb_moves *moves;
    atomic_uint refs;
    pthread_t thread;
    struct gb_move_call *call;
    struct gb_arrival arrival;
};

/* --- handover.c --------------------------------------------------------------------------------------------------- */

struct gb_move_freeze {
    uint64_t number;
    bool quiet; /* changes that had begun have ended */
};
/* The owner's writers wait from now on, for GB_MOVE_FREEZE_MS at most. */
int gb_move_freeze(struct gb_arrival *arrival, struct gb_move_freeze *ret, struct gb_error *err);
int gb_move_look_frozen(struct gb_arrival *arrival, struct gb_move_freeze *freeze, struct gb_error *err);
void gb_move_thaw(struct gb_arrival *arrival, const struct gb_move_freeze *freeze);
/* The owner gives the session to this node. 1: it has, 0: it is not decided yet, -1: it has not, and does not. */
int gb_move_give(struct gb_arrival *arrival, const struct gb_move_freeze *freeze, struct gb_error *err);
/* The owner may free what it has of the session. */
void gb_move_tell_arrived(struct gb_arrival *arrival);

/* --- move.c ------------------------------------------------------------------------------------------------------- */

/* All steps of a move. Returns 0, or -1. [the move's thread] */
int gb_move_run(struct gb_move *move, struct gb_error *err);

struct gb_moves {
    struct gb_arrival_config config;
    pthread_mutex_t lock;
    pthread_cond_t idle;
    bool closing;
    struct gb_move *runs;
    struct gb_move *ended; /* whose threads are to be joined */
    unsigned running;
};

#endif
