/* Pinned host memory: the ceiling of all of it, and the slots of staging memory that are lent to transfers. */
#ifndef GB_CORE_UTIL_STAGING_H
#define GB_CORE_UTIL_STAGING_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "backend/backend.h"
#include "base/error.h"

/* The ceiling of page-locked host memory, of all sessions together: the system cannot move or swap such memory out, so
 * too much of it harms everything else on the machine. A page counts whole. */

struct gb_pinned {
    uint64_t limit_bytes; /* GB_UNLIMITED: there is no ceiling */
    uint64_t slots_bytes; /* of used_bytes: what the slots hold as long as the daemon runs */
    _Atomic uint64_t used_bytes;
};

/* limit_bytes 0: no ceiling. */
void gb_pinned_init(struct gb_pinned *pinned, uint64_t limit_bytes);

/* Takes the bytes of the slots, before others take any. They count until gb_pinned_give_slots. */
int gb_pinned_take_slots(struct gb_pinned *pinned, uint64_t bytes, struct gb_error *err);
void gb_pinned_give_slots(struct gb_pinned *pinned);

/* Would as many bytes fit now? PINNED_LIMIT with the numbers; hopeless where they do not fit beside the slots. */
int gb_pinned_check(struct gb_pinned *pinned, uint64_t bytes, struct gb_error *err);

/* Counts the bytes, before they are locked. PINNED_LIMIT: nothing is counted. [any thread, never blocks] */
int gb_pinned_take(struct gb_pinned *pinned, uint64_t bytes, struct gb_error *err);

/* The same number of bytes is given back as was taken, after they were unlocked. [any thread, never blocks] */
void gb_pinned_give(struct gb_pinned *pinned, uint64_t bytes);

/* A fixed set of pinned slots. The slot given back last is lent first, because it is still in the cache: of those that
 * the same thread had, if there is one, because the cache is its core's. A transfer
 * that finds no slot free waits in line. A slot given back goes straight to the first in line, so no transfer
 * overtakes. */

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

/* slots_bytes / slot_bytes slots. INVALID_ARGUMENT when that gives none. */
int gb_slots_init(struct gb_slots *slots, struct gb_backend *backend, uint64_t slots_bytes, uint64_t slot_bytes,
                  struct gb_error *err);

/* All slots must have been given back. A zeroed or half-built set is accepted. */
void gb_slots_done(struct gb_slots *slots);

/* A slot if one is free and no transfer waits, else NULL. For every slot of a transfer but its first: if transfers
 * waited for a second slot while others wait for their first, everything could stop. */
void *gb_slots_try(struct gb_slots *slots);

/* As gb_slots_try. If there is none, the waiter is put in line (unless it stands there) and NULL is returned. A slot
 * granted meanwhile is returned first. */
void *gb_slots_take(struct gb_slots *slots, struct gb_slot_waiter *waiter);

void gb_slots_give(struct gb_slots *slots, void *slot);

/* At least half are free: a slot that is given back a little later is not missed. */
bool gb_slots_plenty(struct gb_slots *slots);

/* A transfer waits in line. */
bool gb_slots_wanted(struct gb_slots *slots);

/* Takes the waiter out of the line; a granted slot that was not claimed goes back. True: the waiter stood in line, and
 * granted will not be called for it. */
bool gb_slots_cancel(struct gb_slots *slots, struct gb_slot_waiter *waiter);

#endif
