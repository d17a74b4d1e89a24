/* A move, for the files that implement it: moves.c has the list and the threads, move.c the steps of one move, owner.c
 * what is asked of the session's owner, stage.c the session that arrives, buffers.c its buffers, wait.c waiting. */
#ifndef GB_MOVE_INTERNAL_H
#define GB_MOVE_INTERNAL_H

#include <jansson.h>
#include <pthread.h>

#include "base/container.h"
#include "base/map.h"
#include "move/move.h"

#define GB_MOVE_FREEZE_MS 5000
#define GB_MOVE_PULLS 8 /* of one move, at a time */

struct gb_move {
    struct gb_move *next; /* in the list that it is in */
    struct gb_moves *moves;
    struct gb_core *core;
    struct gb_fleet *fleet;
    atomic_uint refs;
    pthread_t thread;
    struct gb_move_call *call;
    struct gb_name session;
    char who[GB_TICKET_WHO_MAX + 1];

    pthread_mutex_t lock; /* for the four below */
    pthread_cond_t woken;
    bool stopped;
    enum gb_code why; /* it was stopped: CANCELLED or DRAINING */
    bool decides;     /* the owner was asked to give it away: from now on it is not cancelled */

    /* The thread's. */
    struct gb_fleet_session there; /* as the directory has it */
    struct gb_fleet_node owner;
    char base[GB_FLEET_URL_SIZE];
    char origin[GB_PULL_ORIGIN_SIZE];
    struct gb_name stage;
    char claim[GB_FLEET_CLAIM_SIZE];
    char *described;     /* the owner's record of the session, as it was taken over */
    struct gb_map items; /* by name: struct gb_move_item */
    unsigned round;
    uint64_t changed_bytes;          /* pulled in this round */
    struct gb_move_pulling *pulling; /* while buffers come */
};

/* --- wait.c ------------------------------------------------------------------------------------------------------- */

/* What is waited for: a call of the core, or an ask of the fleet. */
struct gb_move_wait {
    struct gb_move *move;
    bool done;
};
/* For gb_call_new: arg is the wait. */
void gb_move_wake(void *wait);
bool gb_move_is_stopped(struct gb_move *move);
/* A call of that size whose end is waited for. NULL with err. */
void *gb_move_call_new(struct gb_move *move, size_t size, struct gb_move_wait *wait, struct gb_error *err);
/* Waits for its end; a move that is stopped cancels it. Returns 0 or -1 with its error; the caller drops it. */
int gb_move_call_wait(struct gb_move_wait *wait, struct gb_call *call, struct gb_error *err);
/* Waits until one of the waits is over, or the move is stopped. */
void gb_move_wait_any(struct gb_move *move, const struct gb_move_wait *waits, size_t count);
/* Lets time pass. Returns false if the move is stopped. */
bool gb_move_pause(struct gb_move *move, unsigned ms);
int gb_move_stopped_error(struct gb_move *move, struct gb_error *err);
/* Where the directory has the session, by a majority of it. */
int gb_move_find(struct gb_move *move, struct gb_fleet_find *ret, struct gb_error *err);
/* A small request to the owner; the answer's status and body are in ret, whose answer the caller frees. -1:
 * NODE_UNREACHABLE, or it is stopped. */
int gb_move_request(struct gb_move *move, struct gb_fleet_call *ret, struct gb_error *err);

/* --- owner.c ------------------------------------------------------------------------------------------------------ */

/* GET of that path and query, answered with 200 and an object, which the caller gives back. */
json_t *gb_move_get(struct gb_move *move, const char *path, const char *query, struct gb_error *err);

/* "" if it has no such text. */
const char *gb_move_text(const json_t *object, const char *key);
/* Visits all items of a list of the session: "pools". */
typedef int gb_move_each_fn(struct gb_move *move, const json_t *item, struct gb_error *err);
int gb_move_each(struct gb_move *move, const char *list, gb_move_each_fn *each, struct gb_error *err);

struct gb_move_freeze {
    uint64_t number;
    bool quiet; /* changes that had begun have ended */
};
/* The owner's writers wait from now on, for GB_MOVE_FREEZE_MS at most. */
int gb_move_freeze(struct gb_move *move, struct gb_move_freeze *ret, struct gb_error *err);
int gb_move_look_frozen(struct gb_move *move, struct gb_move_freeze *freeze, struct gb_error *err);
void gb_move_thaw(struct gb_move *move, const struct gb_move_freeze *freeze);
/* The owner gives the session to this node. 1: it has, 0: it is not decided yet, -1: it has not, and does not. */
int gb_move_give(struct gb_move *move, const struct gb_move_freeze *freeze, struct gb_error *err);
/* The owner may free what it has of the session. */
void gb_move_tell_arrived(struct gb_move *move);

/* --- stage.c ------------------------------------------------------------------------------------------------------ */

/* Makes the session that arrives, as the owner describes it. */
int gb_move_stage(struct gb_move *move, struct gb_error *err);
/* Makes it what the owner says now, with pools and streams. */
int gb_move_stage_again(struct gb_move *move, struct gb_error *err);
void gb_move_unstage(struct gb_move *move);
/* It has arrived. */
int gb_move_unveil(struct gb_move *move, struct gb_error *err);

/* --- buffers.c ---------------------------------------------------------------------------------------------------- */

struct gb_move_item {
    struct gb_name name;
    char *facts; /* of the record, besides its bytes, as they are here */
    char made[40];
    uint64_t generation; /* that is here; 0: none */
    uint64_t bytes;
    unsigned round; /* in which the owner listed it last */
    bool sealed;    /* here */
    bool to_seal;   /* the owner's is */
    enum gb_code skipped;
};

/* Brings what has changed since the round before. lenient: what changes meanwhile is left to the next round. */
int gb_move_bring(struct gb_move *move, bool lenient, struct gb_error *err);
void gb_move_items_free(struct gb_move *move);

/* --- move.c ------------------------------------------------------------------------------------------------------- */

/* All steps of a move. Returns 0, or -1. [the move's thread] */
int gb_move_run(struct gb_move *move, struct gb_error *err);

struct gb_moves {
    struct gb_moves_config config;
    pthread_mutex_t lock;
    pthread_cond_t idle;
    bool closing;
    struct gb_move *runs;
    struct gb_move *ended; /* whose threads are to be joined */
    unsigned running;
};

#endif
