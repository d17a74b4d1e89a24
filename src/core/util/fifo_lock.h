/* Changes of one thing, one after the other: who has the turn keeps it from the decision until the database has answered.
 * Whoever holds the lock of the thing may call these; nothing here locks. */
#ifndef GB_CORE_TURNS_H
#define GB_CORE_TURNS_H

#include <stdbool.h>
#include <stddef.h>

struct gb_turn {
    struct gb_turn *next;
};

/* Zero-initialised is free. */
struct gb_turns {
    bool taken;
    struct gb_turn *first;
    struct gb_turn *last;
};

/* True: the turn is the caller's. False: it waits, and some gb_turns_leave will return it. */
static inline bool gb_turns_enter(struct gb_turns *turns, struct gb_turn *turn) {
    turn->next = NULL;
    if (!turns->taken) {
        turns->taken = true;
        return true;
    }
    if (turns->last)
        turns->last->next = turn;
    else
        turns->first = turn;
    turns->last = turn;
    return false;
}

/* Gives the turn up. Returns who has it now, NULL when it is free. */
static inline struct gb_turn *gb_turns_leave(struct gb_turns *turns) {
    struct gb_turn *turn = turns->first;

    if (!turn) {
        turns->taken = false;
        return NULL;
    }
    turns->first = turn->next;
    if (!turns->first)
        turns->last = NULL;
    return turn;
}

#endif
