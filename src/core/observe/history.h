/* History: samples that the housekeeper takes, and queries about them. Included by core.h. */
#ifndef GB_CORE_OBSERVE_HISTORY_H
#define GB_CORE_OBSERVE_HISTORY_H

#include <stdatomic.h>
#include <stdbool.h>

#include "base/error.h"
#include "core/public/types.h"
#include "model/history.h"
#include "store/store.h"

struct gb_core;

/* Numbers of the daemon that the core does not know, asked for before each sample. [the housekeeper's thread, must not
 * block] */
struct gb_outside {
    uint64_t connections;
    uint64_t requests; /* since the process began */
};
/* Sets their reader. NULL: they stay as they are now. Returns when the former reader is not running any more. */
void gb_core_set_outside(struct gb_core *core, void (*read)(void *arg, struct gb_outside *ret), void *arg);

/* A device's memory and the share of its pools, those of sessions included, as of the last housekeeping.
 * DEVICE_NOT_FOUND. [now] */
struct gb_device_numbers {
    uint64_t total_bytes;
    uint64_t free_bytes;
    uint64_t pools;
    uint64_t pools_used_bytes;
    uint64_t reserved_bytes;
    struct gb_memory_numbers memory;
};
int gb_device_numbers(struct gb_core *core, int device, struct gb_device_numbers *ret, struct gb_error *err);

/* [now] Between two samples; 0: none are taken. */
uint64_t gb_history_interval_s(const struct gb_core *core);

/* The key of an object's history. SESSION_NOT_FOUND, POOL_NOT_FOUND, DEVICE_NOT_FOUND. [now] */
int gb_history_of_session(struct gb_core *core, const struct gb_name *session, struct gb_history_key *ret,
                          struct gb_error *err);
int gb_history_of_pool(struct gb_core *core, const struct gb_locator *at, struct gb_history_key *ret,
                       struct gb_error *err);
int gb_history_of_device(struct gb_core *core, int device, struct gb_history_key *ret, struct gb_error *err);

/* A query under way. done runs once, on any thread or inside gb_history_ask. Both sides hold a reference:
 * gb_history_call_new returns two, and the core gives its own back after done. */
struct gb_history_call {
    atomic_int refs;
    atomic_bool finished; /* error and answer may be read once this is true */
    void (*done)(void *arg);
    void *arg;
    struct gb_error error;
    struct gb_history_answer answer;
};
struct gb_history_call *gb_history_call_new(void (*done)(void *arg), void *arg); /* NULL when memory is exhausted */
void gb_history_call_unref(struct gb_history_call *call);

/* Starts the query. INVALID_ARGUMENT (in call->error) if the step is too small, SATURATED. [now] */
void gb_history_ask(struct gb_core *core, const struct gb_history_query *query, struct gb_history_call *call);

#endif
