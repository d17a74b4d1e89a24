/* Pinned host memory: the ceiling of all sessions together, and the slots of staging memory that are lent to
 * transfers. */
#ifndef GB_CORE_UTIL_STAGING_H
#define GB_CORE_UTIL_STAGING_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "backend/backend.h"
#include "base/error.h"

/* The ceiling of page-locked host memory. The system cannot move such memory or swap it out, so too much of it harms
 * everything else on the machine. A page counts as a whole. */

struct gb_pinned {
    uint64_t limit_bytes; /* GB_UNLIMITED: no ceiling */
    uint64_t slots_bytes; /* the part of used_bytes that the slots hold */
    _Atomic uint64_t used_bytes;
};

/* limit_bytes 0: no ceiling. */
void gb_pinned_init(struct gb_pinned *pinned, uint64_t limit_bytes);

/* Takes the bytes of the slots, before other bytes are taken. They count until gb_pinned_give_slots. Returns 0 or
 * -1. */
int gb_pinned_take_slots(struct gb_pinned *pinned, uint64_t bytes, struct gb_error *err);
void gb_pinned_give_slots(struct gb_pinned *pinned);

/* Returns 0 if that many bytes fit now, or -1. Errors: PINNED_LIMIT with the numbers; err->hopeless is set if the bytes
 * never fit beside the slots. */
int gb_pinned_check(struct gb_pinned *pinned, uint64_t bytes, struct gb_error *err);

/* Counts the bytes, before they are locked. Returns 0; -1 with PINNED_LIMIT, and nothing is counted. [any thread, never
 * blocks] */
int gb_pinned_take(struct gb_pinned *pinned, uint64_t bytes, struct gb_error *err);

/* Gives back as many bytes as were taken, after they were unlocked. [any thread, never blocks] */
void gb_pinned_give(struct gb_pinned *pinned, uint64_t bytes);

/* A fixed set of pinned slots. The slot given back last is lent first, because it is still in the cache. Slots that the
 * same thread had are preferred, because the cache belongs to its core. A transfer that finds no slot free waits in
 * line. A slot given back goes straight to the first in line, so no transfer overtakes. */

struct gb_slot_waiter {
    struct gb_slot_waiter *next;
    bool waiting;
    void *slot;                                     /* the slot that was granted, until it is claimed */
    void (*granted)(struct gb_slot_waiter *waiter); /* without locks held, on the thread that gave the slot back */
};

struct gb_slots {
    struct gb_backend *backend;
    pthread_mutex_t lock;
    bool ready;
    char *base;
    size_t slot_bytes;
    size_t total;
    void **free;
    const char **users;        /* of each slot: the thread that had it last */
    _Atomic size_t free_count; /* written under the lock */
    _Atomic uint64_t waits;
    _Atomic uint64_t wanted; /* in line now; written under the lock */
    struct gb_slot_waiter *first;
    struct gb_slot_waiter *last;
};

/* Makes slots_bytes / slot_bytes slots. Returns 0 or -1. Errors: INVALID_ARGUMENT if that is less than one slot. */
int gb_slots_init(struct gb_slots *slots, struct gb_backend *backend, uint64_t slots_bytes, uint64_t slot_bytes,
                  struct gb_error *err);

/* All slots must have been given back. A zeroed or half-built set is accepted. */
void gb_slots_done(struct gb_slots *slots);

/* Returns a slot if one is free and no transfer waits, else NULL. For every slot of a transfer but its first: if
 * transfers waited for a second slot while others wait for their first, all could stop. */
void *gb_slots_try(struct gb_slots *slots);

/* As gb_slots_try. If no slot is free, puts the waiter in line, unless it stands there, and returns NULL. A slot
 * granted meanwhile is returned first. */
void *gb_slots_take(struct gb_slots *slots, struct gb_slot_waiter *waiter);

void gb_slots_give(struct gb_slots *slots, void *slot);

/* Returns true if at least half of the slots are free, so that one may be given back a little later. */
bool gb_slots_plenty(struct gb_slots *slots);

/* Returns true if a transfer waits in line. */
bool gb_slots_wanted(struct gb_slots *slots);

/* Takes the waiter out of the line, and gives back a granted slot that was not claimed. Returns true if the waiter
 * stood in line; granted is not called for it then. */
bool gb_slots_cancel(struct gb_slots *slots, struct gb_slot_waiter *waiter);

#endif
