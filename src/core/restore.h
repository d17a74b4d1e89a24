/* What the opened core begins with: sessions, pools and buffers of the database, made again at the start, and the
 * housekeeper. open.c calls these. */
#ifndef GB_CORE_RESTORE_H
#define GB_CORE_RESTORE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"
#include "base/thread.h"
#include "model/model.h"

struct gb_core;

int gb_core_restore(struct gb_core *core, struct gb_error *err);

bool gb_core_has_default(struct gb_core *core);

void gb_core_make_default(struct gb_core *core); /* tries once, waits for nothing */

/* --- housekeeping ------------------------------------------------------------------------------------------------- */

struct gb_housekeeper {
    struct gb_worker worker;
    bool began; /* it was started */
    /* The thread's alone: */
    uint64_t sampled_ns;
    uint64_t saved_ns;
    uint64_t uses_ns;    /* when the uses of tokens were saved */
    bool failed;         /* the device's failure was posted */
    atomic_bool unsaved; /* the database refused the counters */
    struct gb_counters saved;
};

/* NULL when memory is exhausted. gb_housekeeper_free accepts NULL. */
struct gb_housekeeper *gb_housekeeper_new(void);
void gb_housekeeper_free(struct gb_housekeeper *housekeeper);

int gb_housekeeper_start(struct gb_core *core, struct gb_error *err);
void gb_housekeeper_stop(struct gb_core *core);

/* Queues the counters for the database if they changed. The housekeeper's thread, and at the end. */
void gb_housekeeper_save(struct gb_core *core);

/* Wakes the housekeeper. [any thread, never blocks] */
void gb_housekeeper_kick(struct gb_core *core);

#endif
